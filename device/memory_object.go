package device

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// CreateObject implements Objects.
func (m *Memory) CreateObject(name string) (ObjectWriter, error) {
	if m.opts.Volatile {
		return NoObjects{}.CreateObject(name)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	return &memoryObjectWriter{m: m, name: name}, nil
}

// OpenObject implements Objects.
func (m *Memory) OpenObject(name string) (Object, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.objects[name]
	switch {
	case m.closed:
		return nil, ErrClosed
	case !ok:
		return nil, fmt.Errorf("%q: %w", name, ErrNoObject)
	}
	return memoryObject{bytes.NewReader(data)}, nil
}

// RemoveObject implements Objects.
func (m *Memory) RemoveObject(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.objects[name]
	switch {
	case m.closed:
		return ErrClosed
	case !ok:
		return fmt.Errorf("%q: %w", name, ErrNoObject)
	}
	delete(m.objects, name)
	return nil
}

// ListObjects implements Objects.
func (m *Memory) ListObjects() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	return slices.Sorted(maps.Keys(m.objects)), nil
}

// memoryObjectWriter collects an object. Its bytes never change once they are in
// Memory.objects.
type memoryObjectWriter struct {
	m    *Memory
	name string
	data []byte
	over bool
}

func (w *memoryObjectWriter) Write(p []byte) (int, error) {
	if w.over {
		return 0, ErrClosed
	}
	w.data = append(w.data, p...)
	return len(p), nil
}

func (w *memoryObjectWriter) Commit() error {
	if w.over {
		return ErrClosed
	}
	w.over = true
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.m.closed {
		return ErrClosed
	}
	w.m.objects[w.name] = w.data
	return nil
}

func (w *memoryObjectWriter) Abort() error {
	w.over, w.data = true, nil
	return nil
}

// memoryObject reads bytes that never change.
type memoryObject struct{ *bytes.Reader }

func (memoryObject) Close() error { return nil }
