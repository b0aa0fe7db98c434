package manager

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
)

// service is the manager's control API. The messages' comments say what each
// call does; here stands how it fails.
type service struct {
	managerv1connect.UnimplementedManagerServiceHandler // of what is not served yet

	m *Manager
}

var _ managerv1connect.ManagerServiceHandler = service{}

// Allocate fails with InvalidArgument (a request that can never be met),
// ResourceExhausted (too little memory; says how much there is), Unavailable (a
// VM failed on the way) or DeadlineExceeded.
func (s service) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	ctx, leave, err := s.m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	answer, err := s.m.allocate(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

// Deallocate fails with NotFound for a cache that is unknown or deallocated.
func (s service) Deallocate(ctx context.Context, req *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error) {
	_, leave, err := s.m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, ok := s.m.catalog.watched(req.Msg.GetCacheId()); !ok {
		return nil, unknownCache(req.Msg.GetCacheId())
	}
	ca, ok := s.m.catalog.take(req.Msg.GetCacheId())
	if !ok {
		return nil, unknownCache(req.Msg.GetCacheId())
	}
	s.m.release(ca)
	s.m.opts.Logger.Info("cache deallocated", "cache", ca.id)
	return connect.NewResponse(&managerv1.DeallocateResponse{}), nil
}

// Describe does not fail.
func (s service) Describe(context.Context, *connect.Request[managerv1.DescribeRequest]) (*connect.Response[managerv1.DescribeResponse], error) {
	return connect.NewResponse(s.m.catalog.describe()), nil
}

// Watch streams the events of a cache from the first one on, and ends after
// KIND_CACHE_DELETED. It fails with NotFound, or Unavailable when the manager
// closes.
func (s service) Watch(ctx context.Context, req *connect.Request[managerv1.WatchRequest], stream *connect.ServerStream[managerv1.WatchResponse]) error {
	ca, ok := s.m.catalog.watched(req.Msg.GetCacheId())
	if !ok {
		return unknownCache(req.Msg.GetCacheId())
	}
	// The headers go out at once: until they arrive, the client's call does not
	// return.
	if err := stream.Send(nil); err != nil {
		return err
	}
	for sent := 0; ; {
		events, changed := s.m.catalog.eventsAfter(ca, sent)
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return err
			}
			if e.Kind == managerv1.WatchResponse_KIND_CACHE_DELETED {
				return nil
			}
		}
		sent += len(events)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.m.ctx.Done():
			return errClosing
		}
	}
}

// Register fails with InvalidArgument, or AlreadyExists for the id of a launched
// VM that has registered.
func (s service) Register(ctx context.Context, req *connect.Request[managerv1.RegisterRequest]) (*connect.Response[managerv1.RegisterResponse], error) {
	info := vmFromProto(req.Msg.GetVm())
	if err := info.check(); err != nil {
		return nil, refuse(connect.CodeInvalidArgument, err)
	}
	if err := s.m.catalog.register(info, time.Now().Add(s.m.opts.Silence)); err != nil {
		return nil, refuseCapacity(err, connect.CodeAlreadyExists)
	}
	s.m.opts.Logger.Info("server registered", "vm", info.ID, "control", info.ControlURL, "transport", info.Transport)
	return connect.NewResponse(&managerv1.RegisterResponse{HeartbeatMs: s.m.opts.Heartbeat.Milliseconds()}), nil
}

// Heartbeat fails with NotFound for a server that the manager does not know or
// has given up: it has to register again.
func (s service) Heartbeat(_ context.Context, req *connect.Request[managerv1.HeartbeatRequest]) (*connect.Response[managerv1.HeartbeatResponse], error) {
	if !s.m.catalog.heartbeat(req.Msg.GetVmId(), req.Msg.GetFreeMemory(), time.Now().Add(s.m.opts.Silence)) {
		return nil, refuse(connect.CodeNotFound, fmt.Errorf("no VM %.40q is registered", req.Msg.GetVmId()))
	}
	return connect.NewResponse(&managerv1.HeartbeatResponse{}), nil
}

func unknownCache(id string) error {
	return refuse(connect.CodeNotFound, fmt.Errorf("no cache %.40q", id))
}

// refuse turns err into what an RPC answers with.
func refuse(code connect.Code, err error) error { return connect.NewError(code, err) }
