package server

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/controltoken"
)

// admit accepts calls with credentials. A ticket is checked with its grant, by the call
// itself: see Server.find.
func (s *Server) admit(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := s.authenticate(req.Any(), req.Header()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func (s *Server) authenticate(m any, h http.Header) error {
	switch m := m.(type) {
	case *serverv1.ConnectRequest:
		return s.checkSigned(m.GetTerms(), m.GetToken())
	case *serverv1.ReleaseRequest:
		return nil // needs a ticket
	case *serverv1.ConfigureRequest: // needs a ticket
		if m.GetTerms() == nil {
			return nil
		}
		return s.checkSignedFor(m.GetCacheId(), m.GetGrant(), m.GetTerms(), m.GetToken())
	case *serverv1.DisconnectRequest:
		switch {
		case len(m.GetTicket()) > 0:
			return nil
		case m.GetToken() != "":
			return s.checkSignedFor(m.GetCacheId(), m.GetGrant(), m.GetTerms(), m.GetToken())
		}
	case *serverv1.StatusRequest:
		if len(m.GetTicket()) > 0 {
			return nil
		}
	}
	return s.checkManager(h)
}

// checkSigned reports terms that the server's manager has not signed.
func (s *Server) checkSigned(t *managerv1.Terms, token string) error {
	if !controltoken.Equal(token, controltoken.Grant(s.opts.ControlSecret, t)) {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("want the token of the grant's terms"))
	}
	return nil
}

// checkEnd reports terms whose time is over.
func checkEnd(t *managerv1.Terms) error {
	if t.GetNotAfterUnixMs() == 0 {
		return nil // they have no end
	}
	return controltoken.CheckEnd("the grant's terms have", t.GetNotAfterUnixMs(), time.Now())
}

// checkSignedFor is checkSigned for the terms of one grant.
func (s *Server) checkSignedFor(cache, grant string, t *managerv1.Terms, token string) error {
	if t.GetCacheId() != cache || t.GetGrant() != grant {
		return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("%v: the terms are those of %v",
			grantID{cache, grant}, grantID{t.GetCacheId(), t.GetGrant()}))
	}
	return s.checkSigned(t, token)
}

// checkManager reports callers other than the manager that the server obeys.
func (s *Server) checkManager(h http.Header) error {
	m, err := controltoken.ParseIncarnation(h.Get(controltoken.IncarnationHeader))
	if err != nil || !controltoken.Equal(h.Get("Authorization"), "Bearer "+m.Token(s.opts.ControlSecret)) {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("want a ticket, or the token of the server's manager"))
	}
	if err := s.allegiance.hear(m, false); err != nil {
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return nil
}

// maxSourceKeys bounds the managers, each of a catalog of its own, whose signatures a server knows.
const maxSourceKeys = 8

// TrustSources lets pulls copy from the servers that are signed with a manager's key, and no more from
// others. Those of earlier managers stay: a move goes on when another manager takes over.
func (s *Server) TrustSources(key []byte) error {
	if len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("manager's key for the sources of pulls has %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := func(k ed25519.PublicKey) bool { return bytes.Equal(k, key) }
	if !slices.ContainsFunc(s.sourceKeys, known) {
		s.sourceKeys = append(s.sourceKeys[max(0, len(s.sourceKeys)-maxSourceKeys+1):], bytes.Clone(key))
	}
	return nil
}

// checkSource reports an address from which a pull must not copy. Without a manager that signs, each
// is as good as another.
func (s *Server) checkSource(m *serverv1.PullRequest) error {
	s.mu.Lock()
	keys := s.sourceKeys
	s.mu.Unlock()
	if len(keys) == 0 || m.GetFabricAddr() == s.FabricAddr() {
		return nil
	}
	err := errors.New("it is not signed by the manager")
	switch source := m.GetSource(); {
	case source == nil:
	case source.GetFabricAddr() != m.GetFabricAddr() || source.GetTransport() != s.Transport():
		err = fmt.Errorf("what the manager has signed is %.80q over %.20q", source.GetFabricAddr(), source.GetTransport())
	default:
		for _, key := range slices.Backward(keys) {
			if err = controltoken.CheckSource(key, source, time.Now()); err == nil {
				return nil
			}
		}
	}
	return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("source at %.80q: %w", m.GetFabricAddr(), err))
}

// maxSpent bounds the number of remembered grants that were taken back.
const maxSpent = 1 << 16

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

// allegiance is the one manager that a server obeys. Several managers may know its secret: a
// leader, those that led before, and one that was started on a copy of the catalog, which
// takes the first one's grants for unused. A manager is obeyed in these cases:
//
//	epoch             it calls the server        it answers the server's call
//	the same, and ID  always                     always
//	higher            the present one is silent  always
//	the same          the present one is silent  the present one is silent
//	lower             never                      never
//
// Silent means that the present one has sent nothing for longer than its bound. The epoch
// never falls while the server runs: see DECISIONS.md.
type allegiance struct {
	now func() time.Time

	mu    sync.Mutex // guards the fields below
	to    controltoken.Incarnation
	heard time.Time // last call or answer of the manager
}

// hear returns an error if a manager is not to be obeyed. answers says that it answers the
// server's call.
func (a *allegiance) hear(m controltoken.Incarnation, answers bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	silent := now.Sub(a.heard)
	switch {
	case m.Epoch < a.to.Epoch:
		return fmt.Errorf("manager of epoch %d: the server has obeyed one of epoch %d, and obeys none before it until it is started again", m.Epoch, a.to.Epoch)
	case m.Epoch == a.to.Epoch && m.ID == a.to.ID:
	case m.Epoch > a.to.Epoch && answers:
	case silent <= a.to.Bound:
		return fmt.Errorf("manager of epoch %d: the server obeys another one, of epoch %d, last heard from %v ago", m.Epoch, a.to.Epoch, silent)
	}
	a.to, a.heard = m, now
	return nil
}

// Obey notes the manager that answered the server's call. It fails if the server obeys
// another one.
func (s *Server) Obey(m controltoken.Incarnation) error { return s.allegiance.hear(m, true) }
