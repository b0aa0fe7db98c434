package manager

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/beats"
)

// beatsHandler returns the handler of streams of beats, which make the same calls as the
// control API.
func (m *Manager) beatsHandler() *beats.Handler {
	return &beats.Handler{
		Context: m.ctx, Admit: m.guard.Admit,
		Heartbeat: func(ctx context.Context, req *managerv1.HeartbeatRequest) (*managerv1.HeartbeatResponse, func() error, error) {
			return beat(ctx, m, req, (*leader).heartbeat)
		},
		Renew: func(ctx context.Context, req *managerv1.RenewRequest) (*managerv1.RenewResponse, func() error, error) {
			return beat(ctx, m, req, (*leader).renew)
		},
	}
}

// beat serves a heartbeat or a renewal. Its answer holds when wait has returned nil; a nil wait
// means that it holds at once, as nothing has to be written.
func beat[Q, A any](ctx context.Context, m *Manager, req *Q, do func(*leader, context.Context, *Q) (*A, *txn, error)) (_ *A, wait func() error, _ error) {
	l, err := m.join()
	if err != nil {
		return nil, nil, err
	}
	defer l.work.Done()
	if err := l.state.checkOwner(ctx, req); err != nil {
		return nil, nil, err
	}
	answer, t, err := do(l, ctx, req)
	if err != nil || t == nil {
		return answer, nil, err
	}
	return answer, func() error {
		if err := l.state.writer.wait(t); err != nil {
			return l.failed(refuse(err, connect.CodeInternal))
		}
		return nil
	}, nil
}

// unaryBeat serves a heartbeat or a renewal as a call of its own.
func unaryBeat[Q, A any](ctx context.Context, m *Manager, req *connect.Request[Q], do func(*leader, context.Context, *Q) (*A, *txn, error)) (*connect.Response[A], error) {
	answer, wait, err := beat(ctx, m, req.Msg, do)
	if err == nil && wait != nil {
		err = wait()
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

// heartbeat serves Heartbeat.
func (l *leader) heartbeat(ctx context.Context, req *managerv1.HeartbeatRequest) (*managerv1.HeartbeatResponse, *txn, error) {
	if _, err := l.registrant(ctx, req.GetVmId()); err != nil {
		return nil, nil, err
	}
	t, err := l.state.heartbeat(req.GetVmId(), req.GetStart(), req.GetFreeMemory(), l.nextBeat)
	if err != nil {
		return nil, nil, refuse(err, connect.CodeInternal)
	}
	return l.alive, t, nil
}

// note counts and logs what windows have led to.
func (l *leader) note(j judgement) {
	l.counts.note(func(n *Metrics) {
		n.WindowsJudged += j.judged
		n.WindowsMissed += j.missed
	})
	for _, e := range j.turns {
		log := l.opts.Logger.Info
		if e.GetKind() == managerv1.WatchResponse_KIND_SLO_BROKEN {
			log = l.opts.Logger.Warn
		}
		log(e.GetReason())
	}
}

// renew serves Renew.
func (l *leader) renew(_ context.Context, req *managerv1.RenewRequest) (*managerv1.RenewResponse, *txn, error) {
	if err := checkWindows(req.GetWindows()); err != nil {
		return nil, nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("cache %.40q: %w", req.GetCacheId(), err))
	}
	lease, j, t, err := l.state.renew(req.GetCacheId(), req.GetHolder(), req.GetWindows(), l.term())
	if err != nil {
		return nil, nil, refuse(err, connect.CodeInternal)
	}
	if j.judged > 0 {
		l.note(j)
	}
	if j.due {
		wake(l.breach)
	}
	if j.doubts != nil {
		l.search.doubt(*j.doubts, l.opts.now())
	}
	if lease == l.renewed.GetLeaseMs() {
		return l.renewed, t, nil
	}
	return &managerv1.RenewResponse{LeaseMs: lease}, t, nil
}
