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
// All four are sequentially consistent atomics. If the mover's look at a slot
// misses the session's Enter, then the session's look at the marker comes after
// the mover's store and finds the new one; if it does not miss it, it waits.
package epoch

import (
	"sync"
	"sync/atomic"
)

// Table is one set of sessions and their common epoch. Its methods are safe for
// concurrent use.
type Table struct {
	current atomic.Uint64

	mu    sync.Mutex // serialises changes of slots
	slots atomic.Pointer[[]*Slot]
}

// Slot is one session's place in the table, owned by that session. It fills
// cache lines of its own (two: neighbours are fetched in pairs), so that
// sessions do not slow each other down.
type Slot struct {
	entered atomic.Uint64 // 0 outside
	table   *Table
	_       [112]byte
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
	s := &Slot{table: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.slots.Load()
	slots := make([]*Slot, len(old), len(old)+1)
	copy(slots, old)
	slots = append(slots, s)
	t.slots.Store(&slots)
	return s
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

// Enter protects what the markers read from here on say, until Leave.
func (s *Slot) Enter() { s.entered.Store(s.table.current.Load()) }

// Leave ends the protection.
func (s *Slot) Leave() { s.entered.Store(0) }

// Bump begins a new epoch and returns it.
func (t *Table) Bump() uint64 { return t.current.Add(1) }

// Passed says whether every session has left the epochs before e, so that what
// was changed before e began has been seen by all of them.
func (t *Table) Passed(e uint64) bool {
	for _, s := range *t.slots.Load() {
		if in := s.entered.Load(); in != 0 && in < e {
			return false
		}
	}
	return true
}
