// Package epoch tells when every session has seen a change.
//
// The table holds one counter, the current epoch, and one slot for each
// session. A session enters an epoch before it looks at shared markers and
// leaves when it is through. Whoever changes a marker then bumps the epoch and
// asks whether the old one is over:
//
//	session                          mover
//	slot ← current   (Enter)         marker ← new
//	reads marker                     e ← current+1       (Bump)
//	…uses what it protects…          every slot 0 or ≥ e (Passed)?
//	slot ← 0         (Leave)         nobody uses the old marker any more
//
// Sessions enter and leave once for every operation, movers move seldom: so it is
// the mover who pays for the order between the two (see [Table.Bump]). If the
// mover's look at a slot misses the session's Enter, then the session's look at
// the marker comes after the mover's store and finds the new one; if it does not
// miss it, it waits.
//
// [Table.Exclusive] is the one moment when nobody is inside at all: a barrier
// between the operations of all sessions, for changes that must not be seen half.
package epoch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redykv/redykv/internal/words"
)

// closed is set in the current epoch while an Exclusive waits or runs: nobody
// enters.
const closed = 1 << 63

// Table is one set of sessions and their common epoch. Its methods are safe for
// concurrent use.
type Table struct {
	current atomic.Uint64 // the epoch, and closed

	gate sync.RWMutex // held to write by Exclusive; who finds closed waits for it

	mu    sync.Mutex // serialises changes of slots
	slots atomic.Pointer[[]*Slot]

	stalls stalls
}

// Slot is one session's place in the table, owned by that session, and part of
// what it lies in: so a session needs no load to find it. It fills cache lines of
// its own (two: neighbours are fetched in pairs), so that sessions do not slow each
// other down.
type Slot struct {
	entered uint64 // 0 outside; see fence_asymmetric.go
	table   *Table
	ordered bool // entered is stored before anything is loaded, for movers cannot fence
	_       [111]byte
}

// New returns an empty table.
func New() *Table {
	t := new(Table)
	t.current.Store(1)
	t.slots.Store(new([]*Slot))
	return t
}

// Register adds a slot, outside any epoch.
func (t *Table) Register() *Slot {
	s := new(Slot)
	t.Join(s)
	return s
}

// Join adds a slot that is zero and stays where it is until Unregister.
func (t *Table) Join(s *Slot) {
	s.table, s.ordered = t, !canFence()
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.slots.Load()
	slots := make([]*Slot, len(old), len(old)+1)
	copy(slots, old)
	slots = append(slots, s)
	t.slots.Store(&slots)
}

// Unregister takes the slot out of its table. It must be outside.
func (s *Slot) Unregister() {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	var slots []*Slot
	for _, other := range *t.slots.Load() {
		if other != s {
			slots = append(slots, other)
		}
	}
	t.slots.Store(&slots)
}

// Enter protects what the markers read from here on say, until Leave, and
// returns the epoch. What a session read in an earlier stay in the same epoch is
// protected as well: a marker that moved since waits for this stay.
func (s *Slot) Enter() uint64 {
	e := s.table.current.Load()
	s.publish(e)
	if s.table.current.Load() == e && e < closed {
		return e
	}
	return s.enterSlowly()
}

// Reenter is Enter for a session that was inside epoch e before, and says whether
// that still is the epoch; else the session is outside, and calls Enter.
func (s *Slot) Reenter(e uint64) bool {
	s.publish(e)
	return s.table.current.Load() == e
}

// Resume is Reenter for a session that assembly has entered and left: it is not ordered.
// current is what Current has returned, or another word where the slot has left the table.
func (s *Slot) Resume(current *uint64, e uint64) bool {
	words.Store(&s.entered, e)
	return atomic.LoadUint64(current) == e
}

// Ordered says whether the session must enter by Enter and Reenter. Where it need not,
// assembly may do what Reenter does, by a plain store to the first word of the slot.
func (s *Slot) Ordered() bool { return s.ordered }

// Current is the word of the current epoch, for who does Reenter and Leave in assembly.
func (s *Slot) Current() *uint64 { return (*uint64)(unsafe.Pointer(&s.table.current)) }

// enterSlowly is Enter while the epoch changes or is closed.
func (s *Slot) enterSlowly() uint64 {
	for {
		s.publish(0)
		if s.table.current.Load() >= closed {
			s.table.gate.RLock()   // until the Exclusive is over
			s.table.gate.RUnlock() //nolint:staticcheck // nothing to do inside
		}
		e := s.table.current.Load()
		s.publish(e)
		if s.table.current.Load() == e && e < closed {
			return e
		}
	}
}

// Current is the epoch that now is.
func (t *Table) Current() uint64 { return t.current.Load() &^ closed }

// Leave ends the protection.
func (s *Slot) Leave() { words.Store(&s.entered, 0) }

// Bump begins a new epoch and returns it.
func (t *Table) Bump() uint64 {
	e := t.current.Add(1) &^ closed
	fence()
	return e
}

// Passed says whether every session has left the epochs before e, so that what
// was changed before e began has been seen by all of them.
func (t *Table) Passed(e uint64) bool {
	for _, s := range *t.slots.Load() {
		if in := atomic.LoadUint64(&s.entered) &^ closed; in != 0 && in < e {
			return false
		}
	}
	return true
}

// Wait returns when e has passed. The caller is outside.
func (t *Table) Wait(e uint64) {
	for !t.Passed(e) {
		runtime.Gosched() // they are inside for microseconds
	}
}

// Exclusive runs f while no session is inside an epoch, and keeps those who want
// to enter waiting meanwhile: f must be short. The caller is outside. Every
// session that enters afterwards finds a new epoch.
func (t *Table) Exclusive(f func()) {
	t.gate.Lock()
	defer t.gate.Unlock()
	defer t.stalls.add(time.Now())
	t.current.Or(closed)
	t.Bump()
	defer t.current.And(^uint64(closed))
	for t.inside() {
		runtime.Gosched()
	}
	f()
}

// inside says whether any session is.
func (t *Table) inside() bool {
	for _, s := range *t.slots.Load() {
		if atomic.LoadUint64(&s.entered) != 0 {
			return true
		}
	}
	return false
}
