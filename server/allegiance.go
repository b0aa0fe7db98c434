package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/controltoken"
)

// allegiance is which manager a server obeys: one at a time. Two managers may have its
// secret, where one began on a copy of the other's state; each believes that what the
// other has lent is nobody's. What a manager says counts in these cases:
//
//	manager        it calls the server        it answers the server's own call
//	the same       always                     always
//	newer          the present one is silent  always: it replaces the present one
//	of equal age   the present one is silent  the present one is silent
//	older          never                      the present one is silent
//
// Silent means that nothing was heard of the present one for longer than its bound. An
// older manager that answers has lost its state, and its clock went back.
type allegiance struct {
	now func() time.Time

	mu    sync.Mutex
	to    controltoken.Incarnation // no ID: nobody yet
	heard time.Time
}

// hear returns why the word of a manager does not count. answers says that it answers the
// server's own call.
func (a *allegiance) hear(m controltoken.Incarnation, answers bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	silent := now.Sub(a.heard)
	switch {
	case a.to.ID == "" || m.ID == a.to.ID:
	case answers && m.Epoch > a.to.Epoch:
	case !answers && m.Epoch < a.to.Epoch:
		return fmt.Errorf("the server obeys a manager of epoch %d, this one is of %d", a.to.Epoch, m.Epoch)
	case silent <= a.to.Bound:
		return fmt.Errorf("the server obeys another manager, of epoch %d, which it heard %v ago", a.to.Epoch, silent)
	}
	a.to, a.heard = m, now
	return nil
}

// Obey takes note of the manager that has answered the server's call. The error says that
// the server obeys another one.
func (s *Server) Obey(m controltoken.Incarnation) error {
	if m.ID == "" {
		return nil // it does not say who it is
	}
	return s.allegiance.hear(m, true)
}
