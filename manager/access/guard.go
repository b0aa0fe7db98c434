package access

import (
	"context"
	"crypto/hmac"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/api"
)

// callers are the roles that may call a procedure. Operators may call all.
var callers = map[string][]Role{
	managerv1connect.ManagerServiceAllocateProcedure:      {RoleClient},
	managerv1connect.ManagerServiceReallocateProcedure:    {RoleClient},
	managerv1connect.ManagerServiceSettleProcedure:        {RoleClient},
	managerv1connect.ManagerServiceAttachProcedure:        {RoleClient},
	managerv1connect.ManagerServiceAdoptProcedure:         {RoleClient},
	managerv1connect.ManagerServiceRenewProcedure:         {RoleClient},
	managerv1connect.ManagerServiceDeallocateProcedure:    {RoleClient},
	managerv1connect.ManagerServiceWatchProcedure:         {RoleClient},
	managerv1connect.ManagerServiceDescribeCacheProcedure: {RoleClient},
	managerv1connect.ManagerServiceListModelsProcedure:    {RoleClient},
	managerv1connect.ManagerServiceListOffersProcedure:    {RoleClient},
	managerv1connect.ManagerServiceRegisterProcedure:      {RoleServer},
	managerv1connect.ManagerServiceHeartbeatProcedure:     {RoleServer},
	managerv1connect.ManagerServiceReclaimProcedure:       {RoleServer}, // for its own VM
}

// Guard is an interceptor that refuses calls without a good token. Without tokens it
// refuses none.
type Guard struct {
	// Tokens returns the valid tokens; it is called for each call. nil: every call is
	// allowed.
	Tokens func() *TokenSet
	Now    func() time.Time
	// Standby returns the error for a token that a launched server may have, while SetLaunchKey
	// was not called: another manager knows. nil: the token is unknown.
	Standby func() error

	launchKey atomic.Value // string; the secret from which the tokens of launched servers are made
}

// SetLaunchKey sets the secret from which the tokens of launched servers are made. Without
// it there are none.
func (g *Guard) SetLaunchKey(key string) { g.launchKey.Store(key) }

func (g *Guard) key() string {
	key, _ := g.launchKey.Load().(string)
	return key
}

// LaunchedToken returns the token for the server of a launched VM.
func (g *Guard) LaunchedToken(vm string) string {
	return vm + launchedMark + controltoken.Launched(g.key(), vm)
}

// Catalog returns the identity of the manager's catalog; empty: no manager has led yet.
func (g *Guard) Catalog() string {
	if g.key() == "" {
		return ""
	}
	return controltoken.Catalog(g.key())
}

// launchedMark separates the VM's id from the rest of a launched server's token.
const launchedMark = "."

var _ connect.Interceptor = (*Guard)(nil)

// admit returns the token of a call; an error is a [*api.TokenError], or that of Standby.
func (g *Guard) admit(procedure, authorization string) (t Token, err error) {
	if g.Tokens == nil {
		return Token{Roles: []Role{RoleOperator}}, nil
	}
	secret, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok || secret == "" {
		return t, api.Refuse(connect.CodeUnauthenticated, &api.TokenError{Problem: api.TokenMissing})
	}
	t, ok = g.find(secret)
	switch {
	case !ok && g.Standby != nil && g.key() == "" && strings.Contains(secret, launchedMark):
		return t, g.Standby()
	case !ok:
		return t, api.Refuse(connect.CodeUnauthenticated, &api.TokenError{Problem: api.TokenUnknown})
	case !t.Expires.IsZero() && !g.Now().Before(t.Expires):
		return t, api.Refuse(connect.CodeUnauthenticated, &api.TokenError{Problem: api.TokenExpired, Name: t.Name, Expired: t.Expires})
	}
	may := append([]Role{RoleOperator}, callers[procedure]...)
	if !slices.ContainsFunc(t.Roles, func(r Role) bool { return slices.Contains(may, r) }) {
		return t, api.Refuse(connect.CodePermissionDenied, &api.TokenError{Problem: api.TokenRole, Name: t.Name, Roles: names(may)})
	}
	return t, nil
}

func names(roles []Role) []string {
	var all []string
	for _, r := range roles {
		all = append(all, string(r))
	}
	return all
}

// find returns the token of a secret. Only an unknown one waits for a check of the file.
func (g *Guard) find(secret string) (Token, bool) {
	set := g.Tokens()
	if t, ok := set.find(secret); ok {
		return t, true
	}
	vm, _, ok := strings.Cut(secret, launchedMark)
	if !ok || g.key() == "" || !hmac.Equal([]byte(secret), []byte(g.LaunchedToken(vm))) {
		return set.latest().find(secret)
	}
	return Token{Name: "of launched VM " + vm, Roles: []Role{RoleServer}, Secret: secret, VM: vm}, true
}

// WrapUnary implements [connect.Interceptor].
func (g *Guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := g.Admit(ctx, req.Spec().Procedure, req.Header().Get("Authorization"))
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// Admit returns the context of a call of a procedure with the value of the header
// Authorization, or an error, as calls have it.
func (g *Guard) Admit(ctx context.Context, procedure, authorization string) (context.Context, error) {
	t, err := g.admit(procedure, authorization)
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, callerKey{}, t), nil
}

// recheck is the interval at which the token of an open stream is checked again.
const recheck = time.Second

// WrapStreamingHandler implements [connect.Interceptor]. A stream ends with its token.
func (g *Guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		admit := func() (Token, error) {
			return g.admit(conn.Spec().Procedure, conn.RequestHeader().Get("Authorization"))
		}
		t, err := admit()
		if err != nil {
			return err
		}
		if g.Tokens == nil {
			return next(ctx, conn)
		}
		ctx, cancel := context.WithCancelCause(context.WithValue(ctx, callerKey{}, t))
		defer cancel(nil)
		ended := make(chan error, 1)
		go func() {
			for clock.Sleep(ctx, recheck) {
				if _, err := admit(); err != nil {
					ended <- err
					cancel(err)
					return
				}
			}
		}()
		err = next(ctx, conn)
		select {
		case refusal := <-ended:
			return refusal
		default:
			return err
		}
	}
}

// callerKey is the context key of a call's token.
type callerKey struct{}

// Caller is who makes a call.
type Caller struct {
	Name     string // of the token; empty: the call needed none
	Operator bool   // may make all calls
}

// CallerOf returns the caller of a call by its context. A call that needs no token is an operator's.
func CallerOf(ctx context.Context) Caller {
	t, ok := ctx.Value(callerKey{}).(Token)
	return Caller{Name: t.Name, Operator: !ok || slices.Contains(t.Roles, RoleOperator)}
}

// CheckOwner refuses a caller's call for a cache that another token has allocated. The error is a
// [*api.TokenError]. A cache without an owner is anybody's.
func (c Caller) CheckOwner(owner, cache string) error {
	if c.Operator || owner == "" || owner == c.Name {
		return nil
	}
	return api.Refuse(connect.CodePermissionDenied, &api.TokenError{Problem: api.TokenCache, Name: c.Name, Cache: cache})
}

// Registrant returns the name of the token of a call about a VM. of, which is called where it
// matters, returns whether the manager launched the VM, and the name of the token that
// registered it. The error is a [*api.TokenError] if the VM is another token's: a launched VM
// has its own token, any other VM belongs to the token that registered it.
func (g *Guard) Registrant(ctx context.Context, id string, of func(id string) (launched bool, owner string)) (string, error) {
	t, ok := ctx.Value(callerKey{}).(Token)
	if !ok || slices.Contains(t.Roles, RoleOperator) {
		return t.Name, nil
	}
	launched, owner := of(id)
	free := !launched && (owner == "" || owner == t.Name || !g.Tokens().named(owner))
	if t.VM == id || t.VM == "" && free && !g.Tokens().bound(id) {
		return t.Name, nil
	}
	return "", api.Refuse(connect.CodePermissionDenied, &api.TokenError{Problem: api.TokenVM, Name: t.Name, VM: id})
}

// WrapStreamingClient implements [connect.Interceptor].
func (g *Guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}
