package server

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/controltoken"
)

// errStranger is for callers who do not have what the server's manager would have
// given them.
var errStranger = connect.NewError(connect.CodeUnauthenticated, errors.New("this call needs a token of the server's manager"))

// admit lets calls in that show a token of the server's secret. Calls that are
// about a lease show its ticket, which is looked at with the lease.
func (s *Server) admit(next connect.UnaryFunc) connect.UnaryFunc {
	secret := s.opts.ControlSecret
	if secret == "" {
		return next
	}
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ok := true
		switch m := req.Any().(type) {
		case *serverv1.ConnectRequest:
			ok = controltoken.Equal(m.GetToken(), controltoken.Grant(secret, m.GetCacheId(), m.GetGrant()))
		case *serverv1.DisconnectRequest:
			ok = len(m.GetTicket()) > 0 || fromManager(req.Header(), secret) ||
				controltoken.Equal(m.GetToken(), controltoken.Grant(secret, m.GetCacheId(), m.GetGrant()))
		case *serverv1.StatusRequest:
			ok = fromManager(req.Header(), secret)
		}
		if !ok {
			return nil, errStranger
		}
		return next(ctx, req)
	}
}

func fromManager(h http.Header, secret string) bool {
	return controltoken.Equal(h.Get("Authorization"), "Bearer "+controltoken.Manager(secret))
}
