package server

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/controltoken"
)

// errNoToken refuses calls without a token of the server's manager.
var errNoToken = connect.NewError(connect.CodeUnauthenticated, errors.New("this call needs a token of the server's manager"))

// admit accepts calls with a token made from the server's secret. Calls about a grant carry
// its ticket instead, which is checked with the grant.
func (s *Server) admit(next connect.UnaryFunc) connect.UnaryFunc {
	secret := s.opts.ControlSecret
	if secret == "" {
		return next
	}
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ok, manages := false, false
		switch m := req.Any().(type) {
		case *serverv1.ConnectRequest:
			ok = granted(m, secret)
		case *serverv1.DisconnectRequest:
			ok = len(m.GetTicket()) > 0 || granted(m, secret)
			manages = !ok
		case *serverv1.ReleaseRequest, *serverv1.ConfigureRequest:
			ok = true // the grant's ticket is checked later
		case *serverv1.StatusRequest:
			manages = true
		}
		if manages {
			h := req.Header()
			m, err := controltoken.ParseIncarnation(h.Get(controltoken.IncarnationHeader))
			if ok = err == nil && controltoken.Equal(h.Get("Authorization"), "Bearer "+m.Token(secret)); ok {
				if err := s.allegiance.hear(m, false); err != nil {
					return nil, connect.NewError(connect.CodeFailedPrecondition, err)
				}
			}
		}
		if !ok {
			return nil, errNoToken
		}
		return next(ctx, req)
	}
}

// granted reports whether a request carries the token of its terms.
func granted(m interface {
	GetCacheId() string
	GetGrant() string
	GetRegions() uint32
	GetRegionSize() uint64
	GetCores() uint32
	GetToken() string
}, secret string) bool {
	return controltoken.Equal(m.GetToken(), controltoken.Terms{
		Cache: m.GetCacheId(), Grant: m.GetGrant(), Regions: m.GetRegions(), RegionSize: m.GetRegionSize(), Cores: m.GetCores(),
	}.Token(secret))
}

// maxSpent bounds the number of remembered grants that were taken back.
const maxSpent = 1 << 12

// spent is the set of the last maxSpent grants that were taken back. Their tokens are
// refused, even if the client has not connected yet. A grant without a name stands for all
// grants of its cache. The set holds 64-bit hashes.
type spent struct {
	seed  maphash.Seed
	set   map[uint64]struct{}
	order []uint64 // a ring once it is full
	next  int
}

func newSpent() spent { return spent{seed: maphash.MakeSeed(), set: make(map[uint64]struct{})} }

func (p *spent) add(id grantID) {
	h := maphash.Comparable(p.seed, id)
	if _, there := p.set[h]; there {
		return
	}
	p.set[h] = struct{}{}
	if len(p.order) < maxSpent {
		p.order = append(p.order, h)
		return
	}
	delete(p.set, p.order[p.next])
	p.order[p.next] = h
	p.next = (p.next + 1) % maxSpent
}

func (p *spent) has(id grantID) bool {
	_, one := p.set[maphash.Comparable(p.seed, id)]
	_, all := p.set[maphash.Comparable(p.seed, grantID{cache: id.cache})]
	return one || all
}

// allegiance is the one manager that a server obeys. Two managers may know its secret if one
// was started on a copy of the other's state; each takes the other's grants for unused. A
// manager is obeyed in these cases:
//
//	manager        it calls the server        it answers the server's call
//	the same       always                     always
//	newer          the current one is silent  always: it replaces the current one
//	of equal age   the current one is silent  the current one is silent
//	older          never                      the current one is silent
//
// Silent means that the current one has sent nothing for longer than its bound. An older
// manager that answers has lost its state, and its clock went back.
type allegiance struct {
	now func() time.Time

	mu    sync.Mutex               // guards the fields below
	to    controltoken.Incarnation // no ID: none yet
	heard time.Time                // last call or answer of the manager
}

// hear returns an error if a manager is not to be obeyed. answers says that it answers the
// server's call.
func (a *allegiance) hear(m controltoken.Incarnation, answers bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	silent := now.Sub(a.heard)
	switch {
	case a.to.ID == "" || m.ID == a.to.ID:
	case answers && m.Epoch > a.to.Epoch:
	case !answers && m.Epoch < a.to.Epoch:
		return fmt.Errorf("manager of epoch %d: the server obeys a newer one, of epoch %d", m.Epoch, a.to.Epoch)
	case silent <= a.to.Bound:
		return fmt.Errorf("manager of epoch %d: the server obeys another one, of epoch %d, last heard from %v ago", m.Epoch, a.to.Epoch, silent)
	}
	a.to, a.heard = m, now
	return nil
}

// Obey notes the manager that answered the server's call. It fails if the server obeys
// another one.
func (s *Server) Obey(m controltoken.Incarnation) error {
	if m.ID == "" {
		return nil // an unknown manager
	}
	return s.allegiance.hear(m, true)
}
