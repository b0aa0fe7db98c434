package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/units"
)

// allocate serves Allocate: decide, reserve, launch, commit. Whatever fails on
// the way, the cache is released whole (R17).
func (m *Manager) allocate(ctx context.Context, req *managerv1.AllocateRequest) (*managerv1.AllocateResponse, error) {
	d, err := decide(req, m.opts.Transport)
	if err != nil {
		return nil, refuse(connect.CodeInvalidArgument, err)
	}
	l := launcher{available: m.opts.Allocator != nil, vmMemory: m.opts.VMMemory}
	ca, err := m.catalog.reserve("cache-"+rand.Text(), d, l, func() string { return launchedPrefix + rand.Text() })
	if err != nil {
		return nil, refuseCapacity(err, connect.CodeInvalidArgument)
	}
	answer, err := m.bringUp(ctx, ca)
	if err != nil {
		m.catalog.take(ca.id)
		m.release(ca)
		m.opts.Logger.Warn("cache not allocated", "capacity", units.Size(d.capacity).String(), "err", err)
		return nil, refuseCapacity(err, connect.CodeUnavailable)
	}
	m.opts.Logger.Info("cache allocated", "cache", ca.id, "capacity", units.Size(d.capacity).String(),
		"vms", len(ca.shares), "duration_seconds", req.GetDurationSeconds())
	return answer, nil
}

// bringUp launches the VMs of a reserved cache, all at once, and publishes it
// when all of them have registered.
func (m *Manager) bringUp(ctx context.Context, ca *cache) (*managerv1.AllocateResponse, error) {
	starting, cancel := context.WithTimeoutCause(ctx, m.opts.LaunchTimeout, fmt.Errorf("no answer within %v", m.opts.LaunchTimeout))
	defer cancel()
	for _, s := range ca.shares {
		if !s.vm.launched {
			continue
		}
		spec := VMSpec{ID: s.vm.id, Memory: s.bytes, Cores: s.cores, Transport: ca.demand.transport}
		if err := m.opts.Allocator.Launch(starting, spec); err != nil {
			return nil, fmt.Errorf("launch VM %s: %w", s.vm.id, err)
		}
	}
	for _, s := range ca.shares {
		if s.vm.launched {
			if err := m.catalog.await(starting, s.vm); err != nil {
				return nil, err
			}
		}
	}
	if ctx.Err() != nil { // nobody is left to be answered
		return nil, context.Cause(ctx)
	}
	return m.catalog.commit(ca)
}

// release gives back what a taken cache holds, from all VMs at once, so that one
// that does not answer keeps nobody else from it. It goes on whatever happens to
// the caller.
func (m *Manager) release(ca *cache) {
	var releasing sync.WaitGroup
	for _, s := range ca.shares {
		releasing.Go(func() { m.releaseShare(ca.id, s.vm) })
	}
	releasing.Wait()
	m.catalog.free(ca)
}

// releaseShare terminates a VM that was launched for the cache, and tells a
// registered server to disconnect it. One that cannot be told is failed.
func (m *Manager) releaseShare(cache string, v *vm) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
	defer cancel()
	if v.launched {
		if err := m.opts.Allocator.Terminate(ctx, v.id); err != nil {
			m.opts.Logger.Error("VM not terminated", "vm", v.id, "err", err)
		}
	} else if err := disconnect(ctx, v.ControlURL, cache); err != nil {
		m.opts.Logger.Warn("cache not disconnected", "cache", cache, "vm", v.id, "err", err)
		m.catalog.fail(v.id, v, "does not answer")
	}
}

// disconnect takes a cache's regions back from a server. A cache that has none
// there, because the client never connected or left first, is no error.
func disconnect(ctx context.Context, controlURL, cacheID string) error {
	client := serverv1connect.NewCacheServerServiceClient(httpClient, controlURL, connect.WithReadMaxBytes(maxMessage))
	_, err := client.Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: cacheID}))
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return err
	}
	return nil
}

// refuseCapacity turns err into what an RPC answers with: too little memory has
// a code of its own, so has a call that was given up, and everything else has
// the code given.
func refuseCapacity(err error, otherwise connect.Code) error {
	var capacity *CapacityError
	var answer *connect.Error
	switch {
	case errors.As(err, &capacity):
		return refuse(connect.CodeResourceExhausted, err)
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, ErrTransport):
		return refuse(connect.CodeInvalidArgument, err)
	case errors.Is(err, context.Canceled):
		return refuse(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(connect.CodeDeadlineExceeded, err)
	}
	return refuse(otherwise, err)
}
