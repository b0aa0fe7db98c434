// Package epoch tells when every session has seen a change.
//
// The table holds one counter, the current epoch, and one handle for each
// session. A session enters an epoch before it looks at shared markers and
// leaves when it is through. Whoever changes a marker then bumps the epoch and
// asks whether the old one is over:
//
//	session                          mover
//	handle ← current   (Enter)         marker ← new
//	reads marker                     e ← current+1       (Bump)
//	…uses what it protects…          every handle 0 or ≥ e (Passed)?
//	handle ← 0         (Leave)         nobody uses the old marker any more
//
// Sessions enter and leave once for every operation, movers move seldom: so it is
// the mover who pays for the order between the two (see [Table.Bump]). If the
// mover's look at a handle misses the session's Enter, then the session's look at
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

	"github.com/redykv/redykv/internal/mem"
)

// closed is set in the current epoch while an Exclusive waits or runs: nobody
// enters.
const closed = 1 << 63

// Table is one set of sessions and their common epoch. Its methods are safe for
// concurrent use.
type Table struct {
	current atomic.Uint64 // the epoch, and closed

	gate sync.RWMutex // held to write by Exclusive; who finds closed waits for it

	mu      sync.Mutex // serialises changes of handles
	handles atomic.Pointer[[]*Handle]

	stalls stalls
}

// Handle is one session's place in the table, owned by that session, and part of
// what it lies in: so a session needs no load to find it. It fills cache lines of
// its own (two: neighbours are fetched in pairs), so that sessions do not slow each
// other down.
type Handle struct {
	entered uint64 // 0 outside; see fence_asymmetric.go
	table   *Table
	ordered bool // entered is stored before anything is loaded, for movers cannot fence
	_       [111]byte
}

// New returns an empty table.
func New() *Table {
	t := new(Table)
	t.current.Store(1)
	t.handles.Store(new([]*Handle))
	return t
}

// Register adds a handle, outside any epoch.
func (t *Table) Register() *Handle {
	h := new(Handle)
	t.Join(h)
	return h
}

// Join adds a handle that is zero and stays where it is until Unregister.
func (t *Table) Join(h *Handle) {
	h.table, h.ordered = t, !canFence()
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.handles.Load()
	handles := make([]*Handle, len(old), len(old)+1)
	copy(handles, old)
	handles = append(handles, h)
	t.handles.Store(&handles)
}

// Unregister takes the handle out of its table. It must be outside.
func (h *Handle) Unregister() {
	t := h.table
	t.mu.Lock()
	defer t.mu.Unlock()
	var handles []*Handle
	for _, other := range *t.handles.Load() {
		if other != h {
			handles = append(handles, other)
		}
	}
	t.handles.Store(&handles)
}

// Enter protects what the markers read from here on say, until Leave, and
// returns the epoch. What a session read in an earlier stay in the same epoch is
// protected as well: a marker that moved since waits for this stay.
func (h *Handle) Enter() uint64 {
	e := h.table.current.Load()
	h.publish(e)
	if h.table.current.Load() == e && e < closed {
		return e
	}
	return h.enterSlowly()
}

// Reenter is Enter for a session that was inside epoch e before, and reports whether
// that still is the epoch; else the session is outside, and calls Enter.
func (h *Handle) Reenter(e uint64) bool {
	h.publish(e)
	return h.table.current.Load() == e
}

// Resume is Reenter with the word of the current epoch given: that of Current, or another
// one, which never is e, for a handle that may have left the table.
func (h *Handle) Resume(current *uint64, e uint64) bool {
	h.publish(e)
	return atomic.LoadUint64(current) == e
}

// Ordered reports whether the session must enter by Enter and Reenter. Where it need not,
// assembly may do what Reenter does, by a plain store to the first word of the handle.
func (h *Handle) Ordered() bool { return h.ordered }

// Current is the word of the current epoch, for who does Reenter and Leave in assembly.
func (h *Handle) Current() *uint64 { return (*uint64)(unsafe.Pointer(&h.table.current)) }

// enterSlowly is Enter while the epoch changes or is closed.
func (h *Handle) enterSlowly() uint64 {
	for {
		h.publish(0)
		if h.table.current.Load() >= closed {
			h.table.gate.RLock()   // until the Exclusive is over
			h.table.gate.RUnlock() //nolint:staticcheck // nothing to do inside
		}
		e := h.table.current.Load()
		h.publish(e)
		if h.table.current.Load() == e && e < closed {
			return e
		}
	}
}

// Current is the epoch that now is.
func (t *Table) Current() uint64 { return t.current.Load() &^ closed }

// Leave ends the protection.
func (h *Handle) Leave() { mem.StoreRelease(&h.entered, 0) }

// Bump begins a new epoch and returns it.
func (t *Table) Bump() uint64 {
	e := t.current.Add(1) &^ closed
	fence()
	return e
}

// Passed reports whether every session has left the epochs before e, so that what
// was changed before e began has been seen by all of them.
func (t *Table) Passed(e uint64) bool {
	for _, h := range *t.handles.Load() {
		if in := atomic.LoadUint64(&h.entered) &^ closed; in != 0 && in < e {
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

// inside reports whether any session is.
func (t *Table) inside() bool {
	for _, h := range *t.handles.Load() {
		if atomic.LoadUint64(&h.entered) != 0 {
			return true
		}
	}
	return false
}
