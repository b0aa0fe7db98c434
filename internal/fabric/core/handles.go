package core

import "errors"

// ErrManyImports is returned when a queue pair has the most imported regions it can hold.
var ErrManyImports = errors.New("fabric: too many imported regions")

const (
	indexBits  = 16
	maxHandles = 1 << indexBits
)

// Handles maps the handles of a queue pair's imported regions to the provider's data. A
// handle is an index and, in its upper bits, a count of the index's earlier uses, so that a
// released handle differs from its successor. It is not safe for concurrent use.
type Handles[T any] struct {
	entries []entry[T]
	free    []uint32
}

type entry[T any] struct {
	handle uint32
	live   bool
	value  T
}

// Put stores v and returns its handle.
func (h *Handles[T]) Put(v T) (uint32, error) {
	if n := len(h.free); n > 0 {
		e := &h.entries[h.free[n-1]]
		h.free = h.free[:n-1]
		e.live, e.value = true, v
		return e.handle, nil
	}
	if len(h.entries) == maxHandles {
		return 0, ErrManyImports
	}
	handle := uint32(len(h.entries))
	h.entries = append(h.entries, entry[T]{handle: handle, live: true, value: v})
	return handle, nil
}

// Get returns the value of the handle, or nil. The pointer is valid until the next Put.
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

// Delete removes the handle and returns its value.
func (h *Handles[T]) Delete(handle uint32) (v T, ok bool) {
	if h.Get(handle) == nil {
		return v, false
	}
	e := &h.entries[handle&(maxHandles-1)]
	var zero T
	v, e.value, e.live = e.value, zero, false
	e.handle += 1 << indexBits
	h.free = append(h.free, handle&(maxHandles-1))
	return v, true
}

// All calls f for each live entry.
func (h *Handles[T]) All(f func(*T)) {
	for i := range h.entries {
		if h.entries[i].live {
			f(&h.entries[i].value)
		}
	}
}
