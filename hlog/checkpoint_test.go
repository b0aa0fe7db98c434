package hlog

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/redykv/redykv/device"
)

// held returns the memory between two addresses.
func held(l *Log, from, to int64) (b []byte) {
	for at := from; at < to; at = from + int64(len(b)) {
		b = l.AppendHeld(b, at, to)
	}
	return b
}

// TestHoldKeepsMemory holds an uncommitted range while a writer fills the memory behind it.
// When the hold is released, the writer continues.
func TestHoldKeepsMemory(t *testing.T) {
	l, table := openLog(t, device.NewMemory(), FirstAddress, FirstAddress)
	handle := table.Register()
	for n := range uint64(200) {
		if _, err := add(l, handle, n, 0); err != nil {
			t.Fatal(err)
		}
	}
	var tail, from int64
	table.Exclusive(func() { tail, from = l.Tail(), l.Hold() })
	if from >= tail || from < l.Head() {
		t.Fatalf("held from %d, with the head at %d and the tail at %d", from, l.Head(), tail)
	}
	before := held(l, from, tail)
	written := make(chan error)
	go func() {
		for n := range uint64(1000) {
			if _, err := add(l, handle, n, 0); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	last := from>>l.pageBits + l.Budget()>>l.pageBits - 1 // the next page has no frame
	for l.Tail()>>l.pageBits < last {
		runtime.Gosched()
	}
	if head := l.Head(); head > from {
		t.Errorf("evicted up to %d over what is held from %d on", head, from)
	}
	if after := held(l, from, tail); !bytes.Equal(before, after) {
		t.Errorf("%x became %x", before, after)
	}
	l.UnholdAll()
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// TestPersistEndsWithItsContext waits for a range that never becomes read-only.
func TestPersistEndsWithItsContext(t *testing.T) {
	l, table := openLog(t, device.NewMemory(), FirstAddress, FirstAddress)
	if _, err := add(l, table.Register(), 1, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	persisted := make(chan error)
	go func() { persisted <- l.Persist(ctx, l.Tail()) }()
	cancel()
	if err := <-persisted; !errors.Is(err, context.Canceled) {
		t.Errorf("Persist: %v", err)
	}
	var tail int64
	table.Exclusive(func() { tail = l.ShiftReadOnly() })
	if err := l.Persist(context.Background(), tail); err != nil || l.SafeReadOnly() != tail {
		t.Errorf("Persist: %v, read-only up to %d of %d", err, l.SafeReadOnly(), tail)
	}
}
