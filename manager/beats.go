package manager

import (
	"context"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/beats"
)

// beatsHandler returns the handler of streams of beats, which make the same calls as the
// control API.
func (m *Manager) beatsHandler() *beats.Handler {
	s := service{m: m}
	return &beats.Handler{
		Context: m.ctx, Admit: m.guard.Admit,
		Heartbeat: func(ctx context.Context, req *managerv1.HeartbeatRequest) (*managerv1.HeartbeatResponse, error) {
			return beat(ctx, req, s.Heartbeat)
		},
		Renew: func(ctx context.Context, req *managerv1.RenewRequest) (*managerv1.RenewResponse, error) {
			return beat(ctx, req, s.Renew)
		},
	}
}

func beat[Q, A any](ctx context.Context, req *Q, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error)) (*A, error) {
	r, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}
