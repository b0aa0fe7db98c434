package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// soldOutTries is how often a call is tried if the chosen VMs are sold out meanwhile.
const soldOutTries = 3

// untilSold repeats a call whose VMs are sold out meanwhile.
func untilSold[Q, A any](ctx context.Context, req Q, try func(context.Context, Q) (A, error)) (answer A, err error) {
	for range soldOutTries {
		if answer, err = try(ctx, req); !errors.Is(err, menu.ErrSoldOut) {
			break
		}
	}
	return answer, err
}

// allocate serves Allocate.
func (m *Manager) allocate(ctx context.Context, req *managerv1.AllocateRequest) (*managerv1.AllocateResponse, error) {
	answer, err := untilSold(ctx, req, m.tryAllocate)
	m.counts.note(func(n *Metrics) {
		switch {
		case err == nil:
			n.Allocated++
		case connect.CodeOf(err) == connect.CodeResourceExhausted:
			n.Refused++
		}
	})
	return answer, err
}

// tryAllocate is one try of allocate: prepare, reserve, launch, commit. If a step fails, all of
// the cache is released (R17).
func (m *Manager) tryAllocate(ctx context.Context, req *managerv1.AllocateRequest) (*managerv1.AllocateResponse, error) {
	d, s, err := m.prepare(ctx, req)
	if errors.Is(err, errNoCapacity) {
		err = api.Refuse(connect.CodeInvalidArgument, &api.CapacityError{What: "capacity", Available: m.most(ctx, req)})
	}
	if err != nil {
		return nil, err
	}
	ca, err := m.reserve(d, s)
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	var answer *managerv1.AllocateResponse
	if err = m.bringUp(ctx, ca.grants, d.transport); err == nil {
		answer, err = m.state.commit(ca, m.term())
	}
	if err != nil {
		if held, err := m.state.take(ca.id, ca, "not allocated"); err == nil {
			m.release(ca.id, held, true)
		}
		if few, ok := errors.AsType[*api.CapacityError](err); ok { // it is about one VM
			if most := m.largest(d, s); most < d.capacity {
				err = &api.CapacityError{What: few.What, Asked: d.capacity, Available: most}
			}
		}
		m.opts.Logger.Warn("cache not allocated", "capacity", units.Size(d.capacity).String(), "err", err)
		return nil, refuse(err, connect.CodeUnavailable)
	}
	m.opts.Logger.Info("cache allocated", "cache", ca.id, "capacity", units.Size(d.capacity).String(),
		"vms", len(answer.GetGrants()), "duration_seconds", req.GetDurationSeconds())
	return answer, nil
}

// prepare returns what a request needs, and the VMs that there are for it. The error is the
// call's.
func (m *Manager) prepare(ctx context.Context, req *managerv1.AllocateRequest) (d demand, s supply, err error) {
	d, err = decide(req, m.opts.Transport)
	if a, ok := m.opts.Allocator.(interface{ CheckTransport(name string) error }); ok && err == nil {
		err = a.CheckTransport(d.transport)
	}
	if err != nil {
		return d, s, api.Refuse(connect.CodeInvalidArgument, err)
	}
	if req.GetConfiguration() == nil {
		configs, err := m.search.search(d.slo, d.transport, req.GetClient())
		if err != nil {
			return d, s, err
		}
		d.found(configs)
	}
	s, err = m.supply(ctx, d.cloudRegion)
	d.cloudRegion = s.region
	return d, s, err
}

// reserve reserves memory for a cache with the largest regions for which there is room. The
// error names the most memory that is available with regions of any size.
func (m *Manager) reserve(d demand, s supply) (ca *cache, err error) {
	var short *api.CapacityError
	for _, in := range d.sizes() {
		ca, err = m.state.reserve("cache-"+rand.Text(), in, s, newVMID)
		few, ok := errors.AsType[*api.CapacityError](err)
		if !ok || !d.shrinks {
			return ca, err
		}
		if short == nil || few.Available > short.Available {
			short = few
			short.Asked = d.capacity
		}
	}
	return nil, short
}

// most returns the largest capacity with which a request would succeed now.
func (m *Manager) most(ctx context.Context, req *managerv1.AllocateRequest) uint64 {
	req = proto.CloneOf(req)
	req.Capacity = cmp.Or(req.GetRegionSize(), defaultRegionSize)
	d, s, err := m.prepare(ctx, req)
	if err != nil {
		return 0
	}
	return m.largest(d, s)
}

// largest returns the largest capacity for which there is room, with regions of any size that
// the demand permits.
func (m *Manager) largest(d demand, s supply) (most uint64) {
	s.policy.Room = m.room()
	pool, s := m.state.look(d, s)
	for _, d := range d.sizes() {
		d.regions, d.per = maxRegions, maxRegions
		bytes, err := plan.Largest(d.plan(), s.offers, servers(pool), s.policy)
		if err != nil {
			return 0
		}
		most = max(most, bytes)
	}
	return most
}

func newVMID() string { return launchedPrefix + rand.Text() }

// bringUp launches the VMs of reserved grants, and waits until all have registered.
func (m *Manager) bringUp(ctx context.Context, grants []*grant, transport string) error {
	starting, cancel := context.WithTimeoutCause(ctx, m.opts.LaunchTimeout, fmt.Errorf("no answer within %v", m.opts.LaunchTimeout))
	defer cancel()
	for _, s := range grants {
		if !s.launch {
			continue
		}
		if err := m.opts.Allocator.Launch(starting, m.state.spec(s.vm, transport)); err != nil {
			return fmt.Errorf("launch VM %s: %w", s.vm.id, err)
		}
	}
	for _, s := range grants {
		if s.launch {
			if err := m.state.await(starting, s.vm); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil { // the caller has left
		return context.Cause(ctx)
	}
	return nil
}

// refuse returns the error of a call with err's code, or the code otherwise if err has none.
func refuse(err error, otherwise connect.Code) error {
	var capacity *api.CapacityError
	var answer *connect.Error
	var region *menu.RegionError
	switch {
	case errors.As(err, &capacity), errors.Is(err, menu.ErrSoldOut), errors.Is(err, errCores):
		return api.Refuse(connect.CodeResourceExhausted, err)
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, errUnknownCache), errors.Is(err, errUnknownVM):
		return api.Refuse(connect.CodeNotFound, err)
	case errors.Is(err, errStore):
		return api.Refuse(connect.CodeUnavailable, err)
	case errors.Is(err, allocator.ErrTransport), errors.As(err, &region):
		return api.Refuse(connect.CodeInvalidArgument, err)
	case errors.Is(err, errNotWorth), errors.Is(err, errStale), errors.Is(err, errGrant), errors.Is(err, menu.ErrNotSpot):
		return api.Refuse(connect.CodeFailedPrecondition, err)
	case errors.Is(err, context.Canceled):
		return api.Refuse(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return api.Refuse(connect.CodeDeadlineExceeded, err)
	}
	return api.Refuse(otherwise, err)
}
