package api

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/model"
)

// CapacityError reports too little memory.
type CapacityError struct {
	What      string // what lacks the memory
	Asked     uint64 // bytes
	Available uint64 // bytes
	Why       string // one line per VM type and group of servers: why it was not chosen; may be empty
}

func (e *CapacityError) Error() string {
	size := func(n uint64) units.Size { return units.Size(min(n, math.MaxInt64)) } // any number may be asked for
	return fmt.Sprintf("%s: %v asked for, %v available", e.What, size(e.Asked), size(e.Available))
}

// SLOError reports that no configuration meets an SLO.
type SLOError struct {
	Asked         *managerv1.Slo
	Nearest       *managerv1.Slo           // that can be met
	Configuration *managerv1.Configuration // that meets Nearest

	Cause *model.ImpossibleError // in the manager; nil in a client
}

func (e *SLOError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	asked := model.SLO{LatencyUs: e.Asked.GetMaxLatencyUs(), Mops: e.Asked.GetMinThroughputMops()}
	nearest := model.Performance{LatencyUs: e.Nearest.GetMaxLatencyUs(), Mops: e.Nearest.GetMinThroughputMops()}
	return fmt.Sprintf("no configuration has %v: the nearest has %v", asked, nearest)
}

// StartError reports the registration of a server of which a later incarnation has registered.
type StartError struct {
	VM      string // in the manager; empty in a client
	Present uint64 // number of the later incarnation
}

func (e *StartError) Error() string {
	return fmt.Sprintf("VM %s: a later incarnation of the server has registered, number %d", e.VM, e.Present)
}

// HolderError reports a call of a client that does not hold the cache, or an Attach that names
// another holder than the present one.
type HolderError struct {
	Cache  string // in the manager; empty in a client
	Holder uint64 // number of the present holder
}

func (e *HolderError) Error() string {
	return fmt.Sprintf("cache %s: another client holds it, number %d", e.Cache, e.Holder)
}

// RegionError reports an unknown cloud region, and lists the known ones.
type RegionError = menu.RegionError

// TokenProblem is the kind of a TokenError.
type TokenProblem int

// Problems of tokens.
const (
	TokenMissing TokenProblem = iota + 1
	TokenUnknown
	TokenExpired
	TokenRole // valid, but not for this call
	TokenVM   // a server's, but of another VM
	// TokenCache is the problem of a client's token by which the call's cache was not allocated.
	TokenCache
)

// TokenError reports a call without a valid token.
type TokenError struct {
	Problem TokenProblem
	Name    string    // of the token, if known
	Expired time.Time // of TokenExpired
	Roles   []string  // of TokenRole: the roles that may call
	VM      string    // of TokenVM: the VM of the call
	Cache   string    // of TokenCache: the cache of the call
}

func (e *TokenError) Error() string {
	switch e.Problem {
	case TokenMissing:
		return "this call needs a token"
	case TokenExpired:
		return fmt.Sprintf("token %s expired at %s", e.Name, e.Expired.UTC().Format(time.RFC3339))
	case TokenRole:
		return fmt.Sprintf("token %s is not for this call, which needs the role %s", e.Name, strings.Join(e.Roles, " or "))
	case TokenVM:
		return fmt.Sprintf("token %s is not for VM %.40q", e.Name, e.VM)
	case TokenCache:
		return fmt.Sprintf("token %s is not for cache %.40q, which another token has allocated", e.Name, e.Cache)
	}
	return "the token is unknown"
}

// Refuse returns the error of a call: code, err's text, and as a detail err's type with
// its fields, if it is one of this package's errors.
func Refuse(code connect.Code, err error) error {
	refusal := connect.NewError(code, err)
	if m := detailOf(err); m != nil {
		if d, e := connect.NewErrorDetail(m); e == nil {
			refusal.AddDetail(d)
		}
	}
	return refusal
}

// detailOf is the opposite of fromDetail; nil for other errors.
func detailOf(err error) proto.Message {
	if e, ok := errors.AsType[*CapacityError](err); ok {
		return &managerv1.CapacityDetail{What: e.What, Asked: e.Asked, Available: e.Available, Why: e.Why}
	}
	if e, ok := errors.AsType[*SLOError](err); ok {
		return &managerv1.SloDetail{Asked: e.Asked, Nearest: e.Nearest, Configuration: e.Configuration}
	}
	if e, ok := errors.AsType[*RegionError](err); ok {
		return &managerv1.RegionDetail{Asked: e.Asked, Known: e.Known}
	}
	if e, ok := errors.AsType[*StartError](err); ok {
		return &managerv1.StartDetail{Start: e.Present}
	}
	if e, ok := errors.AsType[*HolderError](err); ok {
		return &managerv1.HolderDetail{Holder: e.Holder}
	}
	if e, ok := errors.AsType[*TokenError](err); ok {
		return &managerv1.TokenDetail{
			Problem: tokenProblems[e.Problem], Name: e.Name, VmId: e.VM, CacheId: e.Cache, Roles: e.Roles, ExpiredUnixMs: ToMillis(e.Expired),
		}
	}
	return nil
}

// remoteError is a manager's error in its client.
type remoteError struct {
	error       // of the call
	typed error // from its detail
}

func (e *remoteError) Unwrap() []error { return []error{e.error, e.typed} }

// Typed returns the error of a call with the type that its detail names, for errors.As.
// connect.CodeOf still finds the code.
func Typed(err error) error {
	answer, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	for _, d := range answer.Details() {
		m, e := d.Value()
		if e != nil {
			continue // of a newer manager
		}
		if t := fromDetail(m); t != nil {
			return &remoteError{error: err, typed: t}
		}
	}
	return err
}

func fromDetail(m proto.Message) error {
	switch d := m.(type) {
	case *managerv1.CapacityDetail:
		return &CapacityError{What: d.GetWhat(), Asked: d.GetAsked(), Available: d.GetAvailable(), Why: d.GetWhy()}
	case *managerv1.SloDetail:
		return &SLOError{Asked: d.GetAsked(), Nearest: d.GetNearest(), Configuration: d.GetConfiguration()}
	case *managerv1.RegionDetail:
		return &RegionError{Asked: d.GetAsked(), Known: d.GetKnown()}
	case *managerv1.StartDetail:
		return &StartError{Present: d.GetStart()}
	case *managerv1.HolderDetail:
		return &HolderError{Holder: d.GetHolder()}
	case *managerv1.TokenDetail:
		return &TokenError{
			Problem: TokenProblem(max(0, slices.Index(tokenProblems, d.GetProblem()))), Name: d.GetName(), VM: d.GetVmId(), Cache: d.GetCacheId(),
			Roles: d.GetRoles(), Expired: FromMillis(d.GetExpiredUnixMs()),
		}
	}
	return nil
}

// tokenProblems maps TokenProblem to the message's enum.
var tokenProblems = []managerv1.TokenDetail_Problem{
	TokenMissing: managerv1.TokenDetail_PROBLEM_MISSING,
	TokenUnknown: managerv1.TokenDetail_PROBLEM_UNKNOWN,
	TokenExpired: managerv1.TokenDetail_PROBLEM_EXPIRED,
	TokenRole:    managerv1.TokenDetail_PROBLEM_ROLE,
	TokenVM:      managerv1.TokenDetail_PROBLEM_VM,
	TokenCache:   managerv1.TokenDetail_PROBLEM_CACHE,
}
