package kv

import (
	"errors"
	"sync/atomic"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/goroutine"
)

var (
	// ErrInModifier says that a call was made from within a Modifier, WordModifier or
	// InPlace of the same store, for which it would have to wait.
	ErrInModifier = errors.New("kv: called from within a Modifier of the same store")
	// ErrHoldsLocks says that a call was made from within Atomically of the same store,
	// for which it would have to wait.
	ErrHoldsLocks = errors.New("kv: the session holds locks")
)

// Where a session asks the user's code within an operation, it is in an epoch, may hold
// the lock of a record, and has its scratch space in use. It notes its goroutine for as
// long. Its own calls look at that note and fail. Other sessions of the store pay nothing
// for it: a call of theirs that has to wait looks through the notes of all sessions for
// its own goroutine, and fails if it would wait for itself. An operation that is tried
// again and again since its Modifier has another session write the key waits for nobody;
// it has the operations of all sessions go the general way, where they look. A record's
// lock is waited for in the same way, by trying again; only who goes through records waits
// for it where he is, and looks before.
//
// The assembly, and RMW beside it, ask outside any epoch and note nothing: a call of the
// session within is an operation like others there. If it changes the record, the
// Modifier is asked again, the general way.

// asking notes that the user's code is asked from here to asked.
func (s *Session) asking() { mem.StoreRelease(&s.asker, goroutine.Self()|1) }

func (s *Session) asked() { mem.StoreRelease(&s.asker, 0) }

// refusal is why the session takes no calls; nil: it does.
func (s *Session) refusal() error {
	if s.asker != 0 {
		return ErrInModifier
	}
	return s.unusable
}

// leaveAnyhow ends a stay in an epoch in which the user's code may have panicked.
func (s *Session) leaveAnyhow() {
	s.asked()
	s.leave()
}

// Of an operation that is tried again and again, so many attempts lie between two looks
// for the reason.
const impatience = 1 << 10

// inModifier says whether this goroutine is within a Modifier of the store.
func (st *Store) inModifier() error {
	return st.noted(ErrInModifier, (*Session).askerNote)
}

// holdsLocks says whether this goroutine is within Atomically of the store.
func (st *Store) holdsLocks() error {
	return st.noted(ErrHoldsLocks, (*Session).holderNote)
}

func (s *Session) askerNote() *uint64  { return &s.asker }
func (s *Session) holderNote() *uint64 { return &s.holder }
func (s *Session) userNote() *uint64   { return &s.user }

// mayWait says whether this goroutine may wait for all sessions.
func (st *Store) mayWait() error {
	if err := st.inModifier(); err != nil {
		return err
	}
	return st.holdsLocks()
}

// mayTry says whether an operation may be tried again that ended so.
func (st *Store) mayTry(o outcome) error {
	if o == keyLocked {
		return st.mayWait()
	}
	return st.inModifier()
}

// noted returns err if one of the sessions has noted this goroutine.
func (st *Store) noted(err error, note func(*Session) *uint64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.notes(note) {
		return err
	}
	return nil
}

// notes says whether one of the sessions has noted this goroutine. The caller holds mu.
func (st *Store) notes(note func(*Session) *uint64) bool {
	self := goroutine.Self()
	if self == 0 {
		return false
	}
	for s := range st.sessions {
		if atomic.LoadUint64(note(s)) == self|1 {
			return true
		}
	}
	return false
}

// suspect has the operations of all sessions look whether they are called from within a
// Modifier, until the function that it returns is called; nil: not now. See Session.pass.
func (st *Store) suspect(s *Session) (end func()) {
	if s.holds.adds == 0 { // else operations are guarded already
		if !st.transactions.TryRLock() {
			return nil // a barrier is waiting: the next time
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
