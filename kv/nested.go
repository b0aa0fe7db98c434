package kv

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/goroutine"
)

var (
	// ErrInModifier means that a call from within a Modifier, WordModifier or InPlace of the
	// same store would have to wait for it.
	ErrInModifier = errors.New("kv: called from within a Modifier of the same store")
	// ErrHoldsLocks means that a call from within Atomically of the same store would have to
	// wait for it.
	ErrHoldsLocks = errors.New("kv: the session holds locks")
)

// A call from within a Modifier could wait for itself. While a session runs the user's code
// within an operation, it is inside an epoch, may hold the lock of a record, and uses its
// scratch memory. So the session notes its goroutine while the code runs.
//
//   - The session's own calls look at this note and fail.
//   - Calls of other sessions look only when they have to wait, so that the check costs
//     nothing otherwise: they look for their own goroutine in the notes of sessions.
//   - An operation that is retried many times, because its Modifier writes the key through
//     another session, does not wait. It makes the operations of all sessions go the general
//     way, where they look: see suspect.
//   - Operations wait for a record's lock by retries. Only scans wait for it at the record,
//     and they look before they begin.
//
// Direct plain calls of RMW and RMWWord run the user's code outside any epoch and note
// nothing: a call of the session within it is an ordinary operation. If that changes the
// record, the Modifier is called again on the general way.

// enterUserCode notes that this goroutine runs the user's code until leaveUserCode.
func (s *Session) enterUserCode() {
	s.mayNote()
	mem.StoreRelease(&s.inUserCode, goroutine.Self()|1)
}

// notingSessions are the sessions of a store that have made a note. The others have nothing to look
// for, and there may be thousands: each durable write looks.
type notingSessions struct {
	mu  sync.Mutex                 // held by who changes all
	all atomic.Pointer[[]*Session] // not changed, but replaced
}

// mayNote adds the session before its first note.
func (s *Session) mayNote() {
	if !s.notes {
		s.notes = true
		s.store.noting.replace(func(all []*Session) []*Session { return append(slices.Clone(all), s) })
	}
}

func (n *notingSessions) remove(s *Session) {
	if s.notes {
		n.replace(func(all []*Session) []*Session {
			return slices.DeleteFunc(slices.Clone(all), func(other *Session) bool { return other == s })
		})
	}
}

func (n *notingSessions) replace(change func(all []*Session) []*Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := change(n.list())
	n.all.Store(&all)
}

func (n *notingSessions) list() []*Session {
	if all := n.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (s *Session) leaveUserCode() { mem.StoreRelease(&s.inUserCode, 0) }

// refusal returns the reason why the session takes no calls, or nil.
func (s *Session) refusal() error {
	if s.inUserCode != 0 {
		return ErrInModifier
	}
	return s.unusable
}

// leaveAnyhow leaves an epoch in which the user's code may have panicked.
func (s *Session) leaveAnyhow() {
	s.leaveUserCode()
	s.leave()
}

// impatience is the number of retries of an operation between two checks by mayTry.
const impatience = 1 << 10

// inModifier returns an error if this goroutine is within a Modifier of the store.
func (st *Store) inModifier() error {
	if st.noted(func(s *Session) *uint64 { return &s.inUserCode }) {
		return ErrInModifier
	}
	return nil
}

// mayWait returns an error if this goroutine must not wait for other sessions: it is within a
// Modifier of the store, or holds locks.
func (st *Store) mayWait() error {
	if err := st.inModifier(); err != nil {
		return err
	}
	if st.noted(func(s *Session) *uint64 { return &s.holder }) {
		return ErrHoldsLocks
	}
	return nil
}

// noted reports whether a session has noted this goroutine.
func (st *Store) noted(note func(*Session) *uint64) bool {
	self := goroutine.Self()
	if self == 0 {
		return false
	}
	for _, s := range st.noting.list() {
		if atomic.LoadUint64(note(s)) == self|1 {
			return true
		}
	}
	return false
}

// mayTry returns an error if an operation with this outcome must not be retried.
func (st *Store) mayTry(o outcome) error {
	if o == keyLocked {
		return st.mayWait()
	}
	return st.inModifier()
}

// suspect makes the operations of all sessions check whether they are called from within a
// Modifier, until end is called. end is nil if that is not possible now. See Session.pass.
func (st *Store) suspect(s *Session) (end func()) {
	if s.holds.adds == 0 { // else operations are guarded already
		if !st.transactions.TryRLock() {
			return nil // a barrier is waiting
		}
		if err := st.guard(); err != nil {
			st.transactions.RUnlock()
			return nil
		}
	}
	st.suspects.Add(1)
	return func() {
		st.suspects.Add(-1)
		if s.holds.adds == 0 {
			st.transactions.RUnlock()
		}
	}
}
