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

// Errors that say what a caller could do instead. A manager sends them as details;
// the clients of [Dial] return them again: errors.As finds them, and connect.CodeOf
// the code.

// CapacityError says how much memory was asked for and how much there was.
type CapacityError struct {
	What      string // who had to provide it
	Asked     uint64 // bytes
	Available uint64 // bytes
	Why       string // line by line, what became of everything that could have served; may be empty
}

func (e *CapacityError) Error() string {
	size := func(n uint64) units.Size { return units.Size(min(n, math.MaxInt64)) } // anybody may ask for anything
	return fmt.Sprintf("%s: %v asked for, %v available", e.What, size(e.Asked), size(e.Available))
}

// SLOError says that no configuration meets an SLO, and what the nearest one has.
type SLOError struct {
	Asked         *managerv1.Slo
	Nearest       *managerv1.Slo // that could be met
	Configuration *managerv1.Configuration

	Cause *model.ImpossibleError // which says more; nil on the way from a manager
}

func (e *SLOError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	asked := model.SLO{LatencyUs: e.Asked.GetMaxLatencyUs(), Mops: e.Asked.GetMinThroughputMops()}
	nearest := model.Performance{LatencyUs: e.Nearest.GetMaxLatencyUs(), Mops: e.Nearest.GetMinThroughputMops()}
	return fmt.Sprintf("no configuration has %v: the nearest has %v", asked, nearest)
}

// RegionError names a cloud region that there is not, and those that there are.
type RegionError = menu.RegionError

// TokenProblem says what is wrong with a token.
type TokenProblem int

// Problems of tokens.
const (
	TokenMissing TokenProblem = iota + 1
	TokenUnknown
	TokenExpired
	TokenRole // it is good, but not for this call
	TokenVM   // it is a server's, but not that of this VM
)

// TokenError says why a call was not let in.
type TokenError struct {
	Problem TokenProblem
	Name    string    // of the token, where it is known
	Expired time.Time // of TokenExpired
	Roles   []string  // of TokenRole: those that may call
	VM      string    // of TokenVM: that the call was about
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
		return fmt.Sprintf("token %s does not speak for VM %.40q", e.Name, e.VM)
	}
	return "the token is not known"
}

// Refuse turns err into what an RPC answers with, and with it what err says to
// programs. A detail that cannot be encoded is left out: the words say the same.
func Refuse(code connect.Code, err error) error {
	refusal := connect.NewError(code, err)
	if m := detailOf(err); m != nil {
		if d, e := connect.NewErrorDetail(m); e == nil {
			refusal.AddDetail(d)
		}
	}
	return refusal
}

// detailOf is the opposite of fromDetail; nil for errors that say nothing more.
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
	if e, ok := errors.AsType[*TokenError](err); ok {
		d := &managerv1.TokenDetail{Problem: tokenProblems[e.Problem], Name: e.Name, VmId: e.VM, Roles: e.Roles}
		if !e.Expired.IsZero() {
			d.ExpiredUnixMs = e.Expired.UnixMilli()
		}
		return d
	}
	return nil
}

// remoteError is a manager's error as its client has it.
type remoteError struct {
	error       // of the call
	typed error // of its detail
}

func (e *remoteError) Unwrap() []error { return []error{e.error, e.typed} }

// Typed gives an error of a call the type that its details say.
func Typed(err error) error {
	answer, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	for _, d := range answer.Details() {
		m, e := d.Value()
		if e != nil {
			continue // a newer manager's
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
	case *managerv1.TokenDetail:
		e := &TokenError{Name: d.GetName(), VM: d.GetVmId(), Roles: d.GetRoles()}
		i := slices.Index(tokenProblems, d.GetProblem())
		e.Problem = TokenProblem(max(i, 0))
		if ms := d.GetExpiredUnixMs(); ms != 0 {
			e.Expired = time.UnixMilli(ms)
		}
		return e
	}
	return nil
}

// tokenProblems are the API's names of TokenProblems, which are their indexes.
var tokenProblems = []managerv1.TokenDetail_Problem{
	TokenMissing: managerv1.TokenDetail_PROBLEM_MISSING,
	TokenUnknown: managerv1.TokenDetail_PROBLEM_UNKNOWN,
	TokenExpired: managerv1.TokenDetail_PROBLEM_EXPIRED,
	TokenRole:    managerv1.TokenDetail_PROBLEM_ROLE,
	TokenVM:      managerv1.TokenDetail_PROBLEM_VM,
}
