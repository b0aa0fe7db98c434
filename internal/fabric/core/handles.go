package core

import "errors"

// ErrManyImports says that a queue pair holds as many imported regions as it
// can.
var ErrManyImports = errors.New("fabric: too many imported regions")

const (
	indexBits  = 16
	maxHandles = 1 << indexBits
)

// Handles maps the handles of a queue pair's imported regions to what its
// provider knows of them. A handle is an index and, above it, how often the
// index was used before, so that a released handle is not taken for its
// successor. One goroutine at a time.
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

// Get returns what the handle stands for, or nil. The pointer is good until the
// next Put.
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

// Delete forgets the handle and returns what it stood for.
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
