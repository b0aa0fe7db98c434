package manager

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
)

// beat serves a heartbeat or a renewal, of which there are more than of all other calls. It answers when what
// the answer tells is written; mostly that is nothing.
func beat[Q, A any](ctx context.Context, m *Manager, req *connect.Request[Q], do func(*leader, context.Context, *Q) (*A, *txn, error)) (*connect.Response[A], error) {
	l, err := m.join()
	if err != nil {
		return nil, err
	}
	defer l.work.Done()
	if err := l.state.checkOwner(ctx, req.Msg); err != nil {
		return nil, err
	}
	answer, t, err := do(l, ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	if t != nil {
		if err := l.state.writer.wait(t); err != nil {
			return nil, l.failed(refuse(err, connect.CodeInternal))
		}
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
	lease, j, t, err := l.state.renew(req.GetCacheId(), req.GetHolder(), req.GetAnswered(), req.GetWindows(), l.term())
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
