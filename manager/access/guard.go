package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/api"
)

// Role says what a token is good for.
type Role string

// Roles. An operator may do everything.
const (
	RoleClient   Role = "client"   // allocates caches and uses them
	RoleServer   Role = "server"   // lends memory
	RoleOperator Role = "operator" // watches over it all
)

// Token is what callers of a manager show, and what it is good for.
type Token struct {
	Name    string // for logs and errors
	Roles   []Role
	Expires time.Time // zero: never
	Secret  string    // the token itself; at least minTokenLen bytes
	// VM is the one that a server with this token may speak for, and servers with others
	// may not. Empty: all those that nobody else has registered.
	VM string
}

// minTokenLen keeps tokens from being guessed.
const minTokenLen = 16

// check refuses a token that could not be used.
func (t Token) check() error {
	if t.Name == "" || len(t.Roles) == 0 {
		return fmt.Errorf("token %.40q: want a name and roles", t.Name)
	}
	for _, r := range t.Roles {
		if r != RoleClient && r != RoleServer && r != RoleOperator {
			return fmt.Errorf("token %.40q: role %.40q: want client, server or operator", t.Name, r)
		}
	}
	if t.VM != "" && (len(t.VM) > api.MaxIDLen || !slices.Contains(t.Roles, RoleServer)) {
		return fmt.Errorf("token %.40q: VM %.40q: want the id of a server's VM", t.Name, t.VM)
	}
	if len(t.Secret) < minTokenLen {
		return fmt.Errorf("token %.40q has %d bytes: want at least %d", t.Name, len(t.Secret), minTokenLen)
	}
	return nil
}

// callers are the roles that may call a procedure beside operators, who may call
// all.
var callers = map[string][]Role{
	managerv1connect.ManagerServiceAllocateProcedure:      {RoleClient},
	managerv1connect.ManagerServiceReallocateProcedure:    {RoleClient},
	managerv1connect.ManagerServiceSettleProcedure:        {RoleClient},
	managerv1connect.ManagerServiceRenewProcedure:         {RoleClient},
	managerv1connect.ManagerServiceDeallocateProcedure:    {RoleClient},
	managerv1connect.ManagerServiceWatchProcedure:         {RoleClient},
	managerv1connect.ManagerServiceDescribeCacheProcedure: {RoleClient},
	managerv1connect.ManagerServiceListModelsProcedure:    {RoleClient},
	managerv1connect.ManagerServiceListOffersProcedure:    {RoleClient},
	managerv1connect.ManagerServiceRegisterProcedure:      {RoleServer},
	managerv1connect.ManagerServiceHeartbeatProcedure:     {RoleServer},
	managerv1connect.ManagerServiceReclaimProcedure:       {RoleServer}, // one that leaves
}

// Guard is an interceptor that refuses calls without a good token. Without tokens it
// refuses none.
type Guard struct {
	Tokens func() []Token // nil: every call is allowed
	// LaunchKey is the secret from which the tokens of launched servers are made; empty:
	// there are none. It does not change once calls are served.
	LaunchKey string
	Now       func() time.Time
}

// LaunchedToken is what the server of a launched VM shows, and no other.
func (g *Guard) LaunchedToken(vm string) string {
	return vm + launchedMark + controltoken.Launched(g.LaunchKey, vm)
}

// launchedMark ends the id of the VM in a launched server's token.
const launchedMark = "."

var _ connect.Interceptor = (*Guard)(nil)

// admit returns whose call it is, or says why it is refused, with a [*api.TokenError].
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

// find looks at all tokens, whichever it is, and compares sums, so that the time
// which that takes says nothing of any.
func (g *Guard) find(secret string) (found Token, ok bool) {
	sum := sha256.Sum256([]byte(secret))
	all := g.Tokens()
	if vm, _, ok := strings.Cut(secret, launchedMark); ok && g.LaunchKey != "" {
		all = append(all[:len(all):len(all)], Token{
			Name: "of launched VM " + vm, Roles: []Role{RoleServer}, Secret: g.LaunchedToken(vm), VM: vm,
		})
	}
	for _, t := range all {
		if s := sha256.Sum256([]byte(t.Secret)); subtle.ConstantTimeCompare(sum[:], s[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}

// named says whether there is a token of that name.
func (g *Guard) named(name string) bool {
	return slices.ContainsFunc(g.Tokens(), func(t Token) bool { return t.Name == name })
}

// bound says whether there is a token for that VM alone.
func (g *Guard) bound(vm string) bool {
	return slices.ContainsFunc(g.Tokens(), func(t Token) bool { return t.VM == vm })
}

// WrapUnary implements [connect.Interceptor].
func (g *Guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		t, err := g.admit(req.Spec().Procedure, req.Header().Get("Authorization"))
		if err != nil {
			return nil, err
		}
		return next(context.WithValue(ctx, callerKey{}, t), req)
	}
}

// recheck is how often the token of an open stream is looked at again.
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

// callerKey is where a call's context has the caller's token.
type callerKey struct{}

// Registrant returns the name of the token by which a call registers a VM, or says what
// becomes of it. launched says whether the manager launched the VM, and owner names the
// token that registered it before. The error is a [*api.TokenError] for a server that has
// no business with the VM: a launched VM has a token of its own, any other belongs to the
// token that it came with.
func (g *Guard) Registrant(ctx context.Context, id string, launched bool, owner string) (string, error) {
	t, ok := ctx.Value(callerKey{}).(Token)
	if !ok || slices.Contains(t.Roles, RoleOperator) {
		return t.Name, nil
	}
	free := !launched && (owner == "" || owner == t.Name || !g.named(owner))
	if t.VM == id || t.VM == "" && free && !g.bound(id) {
		return t.Name, nil
	}
	return "", api.Refuse(connect.CodePermissionDenied, &api.TokenError{Problem: api.TokenVM, Name: t.Name, VM: id})
}

// WrapStreamingClient implements [connect.Interceptor].
func (g *Guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// ParseTokens reads a file of tokens: on each line a name, roles with commas between
// them, when the token expires (never, or a time as in RFC 3339), and the token.
// server:ID is the role of a server that speaks for one VM only. Empty lines and those
// that begin with # say nothing.
func ParseTokens(text string) ([]Token, error) {
	var all []Token
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseToken(fields)
		if err == nil {
			err = t.check()
		}
		if err == nil && slices.ContainsFunc(all, func(o Token) bool { return o.Name == t.Name || o.Secret == t.Secret }) {
			err = fmt.Errorf("token %.40q is there already", t.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errors.New("no tokens: nobody could call")
	}
	return all, nil
}

func parseToken(fields []string) (Token, error) {
	if len(fields) != 4 {
		return Token{}, fmt.Errorf("%d fields: want name, roles, expiry and token", len(fields))
	}
	t := Token{Name: fields[0], Secret: fields[3]}
	for r := range strings.SplitSeq(fields[1], ",") {
		if id, ok := strings.CutPrefix(r, string(RoleServer)+":"); ok && id != "" {
			if t.VM != "" {
				return t, fmt.Errorf("token %.40q: it can be bound to one VM only", t.Name)
			}
			r, t.VM = string(RoleServer), id
		}
		t.Roles = append(t.Roles, Role(r))
	}
	if fields[2] != "never" {
		var err error
		if t.Expires, err = time.Parse(time.RFC3339, fields[2]); err != nil {
			return t, fmt.Errorf("token %.40q: expiry %.40q: want never, or a time such as 2030-12-31T00:00:00Z", t.Name, fields[2])
		}
	}
	return t, nil
}
