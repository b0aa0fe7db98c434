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

// Role is a set of calls that a token permits.
type Role string

// Roles. An operator may do everything.
const (
	RoleClient   Role = "client"   // allocates caches and uses them
	RoleServer   Role = "server"   // lends memory
	RoleOperator Role = "operator" // may make all calls
)

// Token authenticates callers of a manager.
type Token struct {
	Name    string // for logs and errors
	Roles   []Role
	Expires time.Time // zero: never
	Secret  string    // the token itself; at least minTokenLen bytes
	// VM is the id of the only VM that a server with this token may register, and that no
	// other token may. Empty: every VM that is not another token's.
	VM string
}

// minTokenLen is the minimum of a token's bytes, against guessing.
const minTokenLen = 16

// check reports an invalid token.
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

// callers are the roles that may call a procedure. Operators may call all.
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
	managerv1connect.ManagerServiceReclaimProcedure:       {RoleServer}, // for its own VM
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

// LaunchedToken returns the token for the server of a launched VM.
func (g *Guard) LaunchedToken(vm string) string {
	return vm + launchedMark + controltoken.Launched(g.LaunchKey, vm)
}

// launchedMark separates the VM's id from the rest of a launched server's token.
const launchedMark = "."

var _ connect.Interceptor = (*Guard)(nil)

// admit returns the token of a call, or a [*api.TokenError].
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

// find compares the hash of a secret with those of all tokens, so that its time does not
// depend on which token matches.
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

// named reports whether a token of that name exists.
func (g *Guard) named(name string) bool {
	return slices.ContainsFunc(g.Tokens(), func(t Token) bool { return t.Name == name })
}

// bound reports whether a token exists that is only for that VM.
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

// Registrant returns the name of the token of a call about a VM. launched says that the
// manager launched the VM; owner is the name of the token that registered it. The error is
// a [*api.TokenError] if the VM is another token's: a launched VM has its own token, any
// other VM belongs to the token that registered it.
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

// ParseTokens parses a file of tokens. Each line has a name, roles separated by commas,
// the time when the token expires (never, or RFC 3339), and the token. The role server:ID
// is for one VM only. Empty lines and lines that begin with # are ignored.
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
			err = fmt.Errorf("token %.40q: its name or its secret is in the file already", t.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errors.New("no tokens: want a line of name, roles, expiry and token")
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
