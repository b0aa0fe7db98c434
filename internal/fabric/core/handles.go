package core

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrManyImports is returned when a queue pair has the most imported regions it can hold.
var ErrManyImports = errors.New("fabric: too many imported regions")

const (
	indexBits  = 16
	maxHandles = 1 << indexBits
)

// Handles maps the handles of a queue pair's imported regions to the provider's data. A
// handle is an index and, in its upper bits, a count of the index's earlier uses, so that a
// released handle differs from its successor.
//
// Offer may be called by any goroutine. The other methods are not safe for concurrent use: they
// are the owner's. What was offered waits under a lock for the next Adopt, so that Get takes none.
type Handles[T any] struct {
	entries []entry[T] // the owner's

	waiting atomic.Bool // offered is not empty
	mu      sync.Mutex  // guards the fields below
	offered []entry[T]  // not among entries yet, in order
	free    []uint32    // the next handles of deleted entries
	made    uint32      // entries, with those in offered
}

type entry[T any] struct {
	handle uint32
	live   bool
	value  T
}

// Put stores v and returns its handle.
func (h *Handles[T]) Put(v T) (uint32, error) {
	handle, err := h.Offer(v)
	h.Adopt()
	return handle, err
}

// Offer is Put, but Get finds the handle only after the next Adopt.
func (h *Handles[T]) Offer(v T) (uint32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	handle := h.made
	if n := len(h.free); n > 0 {
		handle = h.free[n-1]
		h.free = h.free[:n-1]
	} else if h.made == maxHandles {
		return 0, ErrManyImports
	} else {
		h.made++
	}
	h.offered = append(h.offered, entry[T]{handle: handle, live: true, value: v})
	h.waiting.Store(true)
	return handle, nil
}

// Get returns the value of the handle, or nil. The pointer is valid until the next Adopt.
func (h *Handles[T]) Get(handle uint32) *T {
	i := int(handle & (maxHandles - 1))
	if i >= len(h.entries) {
		return nil
	}
	e := &h.entries[i]
	if e.handle != handle || !e.live {
		return nil
	}
	return &e.value
}

// Adopt makes what was offered before known to Get.
func (h *Handles[T]) Adopt() {
	if h.waiting.Load() {
		h.adopt()
	}
}

func (h *Handles[T]) adopt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.offered {
		if i := int(e.handle & (maxHandles - 1)); i < len(h.entries) {
			h.entries[i] = e
		} else {
			h.entries = append(h.entries, e)
		}
	}
	h.offered = nil
	h.waiting.Store(false)
}

// Delete removes the handle and returns its value.
func (h *Handles[T]) Delete(handle uint32) (v T, ok bool) {
	h.Adopt()
	if h.Get(handle) == nil {
		return v, false
	}
	e := &h.entries[handle&(maxHandles-1)]
	v = e.value
	*e = entry[T]{}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.free = append(h.free, handle+1<<indexBits)
	return v, true
}

// All calls f for each live entry.
func (h *Handles[T]) All(f func(*T)) {
	h.Adopt()
	for i := range h.entries {
		if h.entries[i].live {
			f(&h.entries[i].value)
		}
	}
}
