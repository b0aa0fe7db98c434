package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// reallocate gets more memory from the manager, connects to its servers, and connects every
// session. If the request allows it (Whole), this may be memory for the whole cache. If it
// fails, everything is undone.
//
// From the manager's answer until a Settle with a higher number, another client that takes the
// cache up finds no place of the regions in req.Moves. So only these may get places in the new
// grants. A region gets a new place in new grants only, or after a Settle in which it has none
// (closeGaps).
func (c *Cache) reallocate(ctx context.Context, req *managerv1.ReallocateRequest) (endpoints []*endpoint, configuration Configuration, err error) {
	defer func() {
		if err != nil {
			ctx, cancel := finishing(ctx)
			defer cancel()
			c.settle(ctx) // even without an answer: the manager may have granted memory
		}
	}()
	reclaimed := c.controller.reclaiming()
	if !req.Voluntary { // such a request names exactly the VMs that the manager proposed
		for vm := range reclaimed {
			if !slices.Contains(req.AvoidVms, vm) {
				req.AvoidVms = append(slices.Clip(req.AvoidVms), vm)
			}
		}
	}
	req.Change, req.Holder, req.Answered = c.change.Add(1), c.holder(), c.answered.Load()
	w := c.cfg.wait()
	defer w.end()
	var answer *connect.Response[managerv1.ReallocateResponse]
	for again := false; ; {
		req.WaitMs = w.call.Milliseconds()
		call, cancel := context.WithTimeout(ctx, w.call+controlTimeout)
		answer, err = c.mgr.Reallocate(call, connect.NewRequest(req))
		cancel()
		err = c.heed(err)
		if connect.CodeOf(err) == connect.CodeAborted && !again && c.adopt(ctx, req.CacheId) == nil { // it had an older state
			again, req.Change = true, c.change.Add(1)
			continue
		}
		if err != nil {
			return nil, configuration, fmt.Errorf("reallocate: %w", err)
		}
		if len(answer.Msg.Pending) == 0 {
			break
		}
		w.goesOn(c.log, answer.Msg.Pending)
	}
	c.answered.Store(req.Change)
	// Only another SLO changes the configuration. The manager's record may be that of a change
	// that is not settled yet, and servers end the rings of connections that they do not expect.
	configuration, record := c.Configuration(), c.slo.RecordSize
	if req.Slo != nil {
		record = int(req.Slo.RecordSize)
		if answer.Msg.Configuration != nil {
			configuration = configurationOf(answer.Msg.Configuration)
		}
	}
	if err := c.cfg.allows(configuration, record); err != nil {
		return nil, configuration, err
	}
	regions := req.Regions
	if answer.Msg.Whole && req.Whole > 0 {
		regions = req.Whole
	}
	if err := checkGrants(answer.Msg.Grants, int(regions)); err != nil {
		return nil, configuration, err
	}
	if err := c.controller.checkTargets(answer.Msg.Grants, reclaimed); err != nil {
		return nil, configuration, err
	}
	t := c.table.Load()
	grants, err := connectGrants(ctx, req.CacheId, &c.cfg, answer.Msg.Grants, configuration, t.per)
	if err != nil {
		return nil, configuration, err
	}
	sources := make(map[string]*managerv1.PullSource)
	for _, s := range answer.Msg.Sources {
		sources[s.GetFabricAddr()] = s
	}
	for _, g := range grants {
		g.sources = sources
		endpoints = append(endpoints, newEndpoint(g, configuration))
	}
	if _, err = transportOf(grants, c.Transport()); err == nil {
		err = c.addEndpoints(ctx, endpoints)
	}
	if err != nil {
		return nil, configuration, errors.Join(err, disconnectAll(ctx, grants))
	}
	return endpoints, configuration, nil
}
