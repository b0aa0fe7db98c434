package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// service implements the control API. manager.proto describes the calls; the comments here
// list their errors, but for PermissionDenied and Unauthenticated, which are those of tokens.
type service struct{ m *Manager }

var _ managerv1connect.ManagerServiceHandler = service{}

// changing serves a call that changes the catalog. The context of do ends with the leader.
func changing[Q, A any](ctx context.Context, m *Manager, req *connect.Request[Q], do func(*leader, context.Context, *Q) (*A, error)) (*connect.Response[A], error) {
	return serving(ctx, m, req, func(l *leader, ctx context.Context, req *Q) (*A, error) {
		if err := l.state.writer.refusal(); err != nil {
			return nil, refuse(err, connect.CodeUnavailable)
		}
		return do(l, ctx, req)
	})
}

// serving serves a call of the leader. The context of do ends with it.
func serving[Q, A any](ctx context.Context, m *Manager, req *connect.Request[Q], do func(*leader, context.Context, *Q) (*A, error)) (*connect.Response[A], error) {
	l, ctx, leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := l.state.checkOwner(ctx, req.Msg); err != nil {
		return nil, err
	}
	answer, err := do(l, ctx, req.Msg)
	if err != nil {
		return nil, l.failed(err)
	}
	return connect.NewResponse(answer), nil
}

// failed returns the error of a call that has failed: if the leader has ended, the call may be
// repeated at the next one.
func (l *leader) failed(err error) error {
	if l.ctx.Err() != nil && l.store.Shared() && l.Manager.ctx.Err() == nil {
		return l.notLeader()
	}
	return err
}

// Allocate fails with InvalidArgument (a request that can never be met),
// ResourceExhausted (too little memory; says how much there is), Unavailable (a
// VM failed on the way) or DeadlineExceeded.
func (s service) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	return changing(ctx, s.m, req, (*leader).allocate)
}

// Reallocate fails with NotFound for a cache that is unknown or deallocated meanwhile, else
// as Allocate does.
func (s service) Reallocate(ctx context.Context, req *connect.Request[managerv1.ReallocateRequest]) (*connect.Response[managerv1.ReallocateResponse], error) {
	return changing(ctx, s.m, req, (*leader).reallocate)
}

// Settle fails with NotFound, InvalidArgument (also for a grant that is named twice, or
// with more regions than it has), FailedPrecondition (an unknown grant, or a change that
// is outdated) or ResourceExhausted (a VM has too few cores for the configuration). It
// does not fail because a VM has failed or does not answer.
func (s service) Settle(ctx context.Context, req *connect.Request[managerv1.SettleRequest]) (*connect.Response[managerv1.SettleResponse], error) {
	return changing(ctx, s.m, req, (*leader).settle)
}

// Attach fails with NotFound for a cache that is unknown or has ended, FailedPrecondition for
// another holder than the present one, or InvalidArgument.
func (s service) Attach(ctx context.Context, req *connect.Request[managerv1.AttachRequest]) (*connect.Response[managerv1.AttachResponse], error) {
	return changing(ctx, s.m, req, (*leader).takeUp)
}

// Adopt fails with Unavailable while a server of the cache has not registered or does not show a grant,
// FailedPrecondition for a cache that has ended or has another holder, or InvalidArgument.
func (s service) Adopt(ctx context.Context, req *connect.Request[managerv1.AdoptRequest]) (*connect.Response[managerv1.AdoptResponse], error) {
	return changing(ctx, s.m, req, (*leader).adopt)
}

// Renew fails with NotFound for a cache that is unknown or whose lease has ended, or
// FailedPrecondition if another client holds it, as do Reallocate, Settle, Deallocate and Watch.
func (s service) Renew(ctx context.Context, req *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error) {
	return beat(ctx, s.m, req, (*leader).renew)
}

// Reclaim fails with InvalidArgument, NotFound for an unknown VM, or PermissionDenied for
// another VM's server.
func (s service) Reclaim(ctx context.Context, req *connect.Request[managerv1.ReclaimRequest]) (*connect.Response[managerv1.ReclaimResponse], error) {
	return changing(ctx, s.m, req, func(l *leader, ctx context.Context, req *managerv1.ReclaimRequest) (*managerv1.ReclaimResponse, error) {
		ms, reason := req.GetNoticeMs(), req.GetReason()
		if ms < 0 || ms > node.MaxNotice.Milliseconds() {
			return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("notice_ms %d: want 0 to %d", ms, node.MaxNotice.Milliseconds()))
		}
		if len(reason) > maxReasonLen {
			return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("reason of %d bytes: want at most %d", len(reason), maxReasonLen))
		}
		if _, err := l.registrant(ctx, req.GetVmId()); err != nil {
			return nil, err
		}
		deadline := l.opts.now().Add(time.Duration(ms) * time.Millisecond)
		deadline, err := l.reclaim(req.GetVmId(), req.GetStart(), deadline, cmp.Or(reason, "reclaimed"))
		if err != nil {
			return nil, refuse(err, connect.CodeInternal)
		}
		return &managerv1.ReclaimResponse{DeadlineUnixMs: deadline.UnixMilli(), LeftMs: max(1, deadline.Sub(l.opts.now()).Milliseconds())}, nil
	})
}

// Deallocate waits a while for the servers to take the cache's memory back. An operator's call also takes
// back what servers lend to a cache that the catalog does not know.
func (s service) Deallocate(ctx context.Context, req *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error) {
	return changing(ctx, s.m, req, func(l *leader, ctx context.Context, req *managerv1.DeallocateRequest) (*managerv1.DeallocateResponse, error) {
		grants, existed, err := l.state.deallocate(req.GetCacheId(), req.Holder, l.opts.now(), "deallocated")
		if err == nil && !existed {
			err = l.state.written() // a repetition
			if err == nil && access.CallerOf(ctx).Operator {
				grants = l.state.expelAll(req.GetCacheId())
				existed = len(grants) > 0
			}
		}
		if err != nil {
			return nil, refuse(err, connect.CodeInternal)
		}
		l.awaitFreed(ctx, grants)
		if existed {
			l.opts.Logger.Info("cache deallocated", "cache", req.GetCacheId())
		}
		return &managerv1.DeallocateResponse{Existed: existed}, nil
	})
}

// Describe does not fail.
func (s service) Describe(ctx context.Context, req *connect.Request[managerv1.DescribeRequest]) (*connect.Response[managerv1.DescribeResponse], error) {
	return serving(ctx, s.m, req, func(l *leader, _ context.Context, _ *managerv1.DescribeRequest) (*managerv1.DescribeResponse, error) {
		answer := l.state.describe()
		l.perform(answer.GetCaches()...)
		return answer, nil
	})
}

// DescribeCache fails with NotFound.
func (s service) DescribeCache(ctx context.Context, req *connect.Request[managerv1.DescribeCacheRequest]) (*connect.Response[managerv1.DescribeCacheResponse], error) {
	return serving(ctx, s.m, req, func(l *leader, _ context.Context, req *managerv1.DescribeCacheRequest) (*managerv1.DescribeCacheResponse, error) {
		answer, err := l.state.describeCache(req.GetCacheId())
		if err != nil {
			return nil, refuse(err, connect.CodeNotFound)
		}
		l.perform(answer.GetCache())
		answer.Windows = l.state.windows(req.GetCacheId(), l.opts.now())
		answer.DurationEnforced = l.opts.EnforceDuration && answer.GetCache().GetDurationSeconds() > 0
		return answer, nil
	})
}

// Calibrate fails with InvalidArgument for a network that cannot be parsed, FailedPrecondition where
// there is nothing to measure or to scale, and Aborted if the measurement fails or another one is under
// way.
func (s service) Calibrate(ctx context.Context, req *connect.Request[managerv1.CalibrateRequest]) (*connect.Response[managerv1.CalibrateResponse], error) {
	return changing(ctx, s.m, req, func(l *leader, ctx context.Context, req *managerv1.CalibrateRequest) (*managerv1.CalibrateResponse, error) {
		return l.calibrateNow(ctx, req)
	})
}

// ListModels does not fail.
func (s service) ListModels(context.Context, *connect.Request[managerv1.ListModelsRequest]) (*connect.Response[managerv1.ListModelsResponse], error) {
	return connect.NewResponse(&managerv1.ListModelsResponse{Models: s.m.search.models()}), nil
}

// Watch ends after KIND_CACHE_DELETED. It fails with NotFound, or Unavailable when the
// manager closes.
func (s service) Watch(ctx context.Context, req *connect.Request[managerv1.WatchRequest], stream *connect.ServerStream[managerv1.WatchResponse]) error {
	l, err := s.m.leading()
	if err != nil {
		return err
	}
	if err := l.state.checkOwner(ctx, req.Msg); err != nil {
		return err
	}
	ca, ok := l.state.watched(req.Msg.GetCacheId())
	if !ok {
		return api.Refuse(connect.CodeNotFound, noCache(req.Msg.GetCacheId()))
	}
	// Send the headers at once: the client's call returns when they arrive.
	if err := stream.Send(nil); err != nil {
		return err
	}
	for sent := req.Msg.GetAfterSequence(); ; {
		events, changed, err := l.state.eventsAfter(ca, req.Msg.Holder, sent, l.opts.now())
		if err != nil {
			return refuse(err, connect.CodeInternal)
		}
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return err
			}
			if e.Kind == managerv1.WatchResponse_KIND_CACHE_DELETED {
				return nil
			}
			sent = e.GetSequence()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ctx.Done():
			if _, err := s.m.leading(); err != nil {
				return err
			}
			return s.m.notLeader()
		}
	}
}

// Register fails with InvalidArgument, FailedPrecondition where a later incarnation of the
// server has registered, AlreadyExists for the id of a launched VM that has ended, or
// PermissionDenied for a VM of another token.
func (s service) Register(ctx context.Context, req *connect.Request[managerv1.RegisterRequest]) (*connect.Response[managerv1.RegisterResponse], error) {
	return changing(ctx, s.m, req, func(l *leader, ctx context.Context, req *managerv1.RegisterRequest) (*managerv1.RegisterResponse, error) {
		info := node.FromProto(req.GetVm())
		info.Started = l.opts.now()
		info.Secret = string(req.GetControlSecret())
		if err := info.Check(); err != nil {
			return nil, api.Refuse(connect.CodeInvalidArgument, err)
		}
		registrant, err := l.registrant(ctx, info.ID)
		if err != nil {
			return nil, err
		}
		if err := l.state.register(info, registrant, l.nextBeat()); err != nil {
			return nil, refuse(err, connect.CodeAlreadyExists)
		}
		if err := l.state.written(); err != nil { // it may be a repetition
			return nil, refuse(err, connect.CodeUnavailable)
		}
		l.opts.Logger.Info("server registered", "vm", info.ID, "control", info.ControlURL, "transport", info.Transport)
		return &managerv1.RegisterResponse{
			HeartbeatMs: l.opts.Heartbeat.Milliseconds(), Incarnation: l.incarnation(), SourceKey: l.signs.Public(),
		}, nil
	})
}

// Heartbeat fails with NotFound for an incarnation that is unknown or has failed, which has to
// register again; and with PermissionDenied for a VM of another token.
func (s service) Heartbeat(ctx context.Context, req *connect.Request[managerv1.HeartbeatRequest]) (*connect.Response[managerv1.HeartbeatResponse], error) {
	return beat(ctx, s.m, req, (*leader).heartbeat)
}

// registrant returns the name of the token by which a call speaks for a VM.
func (l *leader) registrant(ctx context.Context, id string) (string, error) {
	return l.guard.Registrant(ctx, id, l.state.registrantOf)
}

// health adds the endpoints for supervisors and load balancers, which need no token: healthz
// succeeds unless the leader is stuck, readyz while the manager leads or follows a leader.
func (m *Manager) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, m.healthy()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, m.ready()) })
}

// healthy returns why the process should be restarted.
func (m *Manager) healthy() error {
	if err := m.stuck.Load(); err != nil {
		return *err
	}
	return nil
}

// ready returns why clients had better call another manager.
func (m *Manager) ready() error {
	if err := errors.Join(context.Cause(m.ctx), m.healthy()); err != nil {
		return err
	}
	if _, err := m.leading(); err == nil {
		return nil
	}
	if leader := m.store.Leader(); leader == "" || leader == m.URL() {
		return errors.Join(errors.New("this manager does not lead, and knows no leader"), m.store.Trouble())
	}
	return nil
}

func say(w http.ResponseWriter, err error) {
	text := "ok\n"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error() + "\n"
	}
	_, _ = io.WriteString(w, text) // the caller may have left
}
