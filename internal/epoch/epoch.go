// Package epoch determines when every session has seen a change.
//
// The table holds one counter, the current epoch, and one handle for each session. A session
// enters an epoch before it reads shared markers and leaves it afterwards. A goroutine that
// moves a marker (the mover) then bumps the epoch and asks whether the old one has passed:
//
//	session                          mover
//	handle ← current   (Enter)         marker ← new
//	reads marker                     e ← current+1       (Bump)
//	…uses what it protects…          every handle 0 or ≥ e (Passed)?
//	handle ← 0         (Leave)         nobody uses the old marker any more
//
// Sessions enter and leave for every operation and movers move rarely, so the mover pays for
// the order between the two (see [Table.Bump]). If the mover's load of a handle misses the
// session's Enter, then the session's load of the marker comes after the mover's store and
// returns the new one; otherwise the mover waits.
//
// [Table.Exclusive] runs a function while no session is inside an epoch: a barrier between the
// operations of all sessions, for changes that no session may see in part.
package epoch

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// closed is set in the current epoch while an Exclusive waits or runs: no session enters.
const closed = 1 << 63

// Table is one set of sessions and their common epoch. Its methods are safe for concurrent use.
type Table struct {
	current atomic.Uint64 // the epoch, and closed

	gate sync.RWMutex // write-locked by Exclusive; sessions that find closed wait for it

	mu      sync.Mutex // serializes changes of handles, and guards stalls
	handles atomic.Pointer[[]*Handle]
	stalls  Stalls
}

// Stalls are the number and the durations of calls of Exclusive, in which sessions wait.
type Stalls struct {
	Count          uint64
	Last, Max, Sum time.Duration
}

// Stalls returns the stalls since the table was made.
func (t *Table) Stalls() Stalls {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stalls
}

// stalled counts a stall that began at since.
func (t *Table) stalled(since time.Time) {
	d := time.Since(since)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stalls
	t.stalls = Stalls{s.Count + 1, d, max(s.Max, d), s.Sum + d}
}

// Handle is one session's entry in the table. The session owns it and embeds it, so that it
// needs no load to find it. It fills two cache lines (adjacent lines are fetched in pairs), so
// that sessions do not share lines.
type Handle struct {
	entered uint64 // 0 outside; see fence_asymmetric.go
	table   *Table
	ordered bool // entered is stored before later loads, since movers cannot fence
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

// Join adds a zero handle, which must not move until Unregister.
func (t *Table) Join(h *Handle) {
	h.table, h.ordered = t, !canFence()
	t.mu.Lock()
	defer t.mu.Unlock()
	handles := slices.Concat(*t.handles.Load(), []*Handle{h})
	t.handles.Store(&handles)
}

// Unregister removes the handle from its table. It must be outside.
func (h *Handle) Unregister() {
	t := h.table
	t.mu.Lock()
	defer t.mu.Unlock()
	handles := slices.Clone(*t.handles.Load())
	handles = slices.DeleteFunc(handles, func(other *Handle) bool { return other == h })
	t.handles.Store(&handles)
}

// Enter protects what the markers read from here on stand for, until Leave, and returns the
// epoch. What the session has read in the same epoch before, between an earlier Enter and
// Leave, is protected too: the mover of a marker that moved since waits for this Leave.
func (h *Handle) Enter() uint64 {
	e := h.table.current.Load()
	h.publish(e)
	if h.table.current.Load() == e && e < closed {
		return e
	}
	return h.enterSlowly()
}

// Reenter is Enter for a session that was inside epoch e before, and reports whether that
// still is the epoch; if not, the session calls Enter.
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

// Ordered reports whether the session must enter by Enter and Reenter. If not, assembly may do
// what Reenter does, by a plain store to the first word of the handle.
func (h *Handle) Ordered() bool { return h.ordered }

// Current is the word of the current epoch, for Reenter and Leave in assembly.
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

// Current is the current epoch.
func (t *Table) Current() uint64 { return t.current.Load() &^ closed }

// Leave ends the protection.
func (h *Handle) Leave() { mem.StoreRelease(&h.entered, 0) }

// Bump begins a new epoch and returns it.
func (t *Table) Bump() uint64 {
	e := t.current.Add(1) &^ closed
	fence()
	return e
}

// Passed reports whether every session has left the epochs before e, and so sees what was
// changed before e began. It is false while an Exclusive waits or runs, whose function counts as a
// session.
func (t *Table) Passed(e uint64) bool {
	if t.current.Load() >= closed {
		return false
	}
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
		runtime.Gosched() // sessions are inside for microseconds
	}
}

// Exclusive runs f while no session is inside an epoch; sessions wait to enter meanwhile, so f
// must be short. The caller is outside. Sessions that enter afterwards are in a new epoch.
func (t *Table) Exclusive(f func()) {
	t.gate.Lock()
	defer t.gate.Unlock()
	defer t.stalled(time.Now())
	t.current.Or(closed)
	t.Bump()
	defer t.current.And(^uint64(closed))
	for t.inside() {
		runtime.Gosched()
	}
	f()
}

// inside reports whether any session is inside an epoch.
func (t *Table) inside() bool {
	for _, h := range *t.handles.Load() {
		if atomic.LoadUint64(&h.entered) != 0 {
			return true
		}
	}
	return false
}
