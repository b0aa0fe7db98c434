package hlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// Persist returns when everything below target, which is read-only, is durable on the device.
func (l *Log) Persist(ctx context.Context, target int64) error {
	if err := l.Write(ctx, target); err != nil {
		return err
	}
	if err := device.Retry(ctx, l.dev.Sync); err != nil {
		return fmt.Errorf("hlog: committing up to %d: %w", target, err)
	}
	return nil
}

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
	testrun.Until(t, "the log has used its frames", func() bool { return l.Tail()>>l.pageBits >= last })
	if head := l.Head(); head > from {
		t.Errorf("evicted up to %d over what is held from %d on", head, from)
	}
	if after := held(l, from, tail); !bytes.Equal(before, after) {
		t.Errorf("%x became %x", before, after)
	}
	l.UnholdAll()
	if err := testrun.Receive(t, "the records are written", written); err != nil {
		t.Error(err)
	}
}

// What is in memory when an Exclusive begins stays there until it ends, also in frames that are not used
// again.
func TestExclusiveKeepsMemory(t *testing.T) {
	const page, frames = 4096, 5 // of a ring of 8
	l, table, dev := openValve(t, page, frames)
	handle := table.Register()
	for n := uint64(1); l.tailPage() < frames-1; n++ {
		if _, err := add(l, handle, n, 0); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Until(t, "two pages are read-only", func() bool { return l.SafeReadOnly() == 2*page })
	table.Exclusive(func() {
		for p := range int64(2) { // the step that takes the second page comes after the eviction of the first
			dev.open <- struct{}{}
			testrun.Until(t, "a page is written", func() bool { return l.Committed() == (p+1)*page })
		}
		if l.Head() != page || l.At(FirstAddress).Word0() != 1 {
			t.Errorf("the head is %d, and the first record has key %d", l.Head(), l.At(FirstAddress).Word0())
		}
	})
	close(dev.open)
	if err := l.Close(); err != nil {
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
	if err := testrun.Receive(t, "Persist ends", persisted); !errors.Is(err, context.Canceled) {
		t.Errorf("Persist: %v", err)
	}
	var tail int64
	table.Exclusive(func() { tail = l.ShiftReadOnly() })
	if err := l.Persist(context.Background(), tail); err != nil || l.SafeReadOnly() != tail {
		t.Errorf("Persist: %v, read-only up to %d of %d", err, l.SafeReadOnly(), tail)
	}
}

// inBlocks is a memory device that is accessed in blocks, like a disk.
type inBlocks struct{ *device.Memory }

func (inBlocks) Alignment() int { return 64 }

// TestWriteWantsTheLastBlock makes a log read-only inside a block. What is before the block is
// written by itself, its start when Write wants it.
func TestWriteWantsTheLastBlock(t *testing.T) {
	l, table := openLog(t, inBlocks{device.NewMemory()}, FirstAddress, FirstAddress)
	handle := table.Register()
	const record = 24 // bytes; another one must not fill the block, which would then be written
	for inside := int64(0); inside < record || inside >= 64-record || l.Block(l.Tail()) < 3*64; inside = l.Tail() - l.Block(l.Tail()) {
		if _, err := add(l, handle, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	var tail int64
	table.Exclusive(func() { tail = l.ShiftReadOnly() })
	whole := l.Block(tail)
	for _, target := range []int64{whole, whole, tail, tail} {
		if err := l.Write(t.Context(), target); err != nil || l.Committed() != target {
			t.Fatalf("Write(%d): %v, the device has the log up to %d", target, err, l.Committed())
		}
	}
	buf := device.AlignedBuffer(256, 64)
	if blocks, addr, ok := l.Unwritten(tail, buf); len(blocks) > 0 || addr != whole || !ok {
		t.Errorf("%d bytes at %d, %v", len(blocks), addr, ok)
	}
	if _, err := add(l, handle, 2, 0); err != nil {
		t.Fatal(err)
	}
	table.Exclusive(func() { tail = l.ShiftReadOnly() })
	if blocks, addr, ok := l.Unwritten(tail, buf); len(blocks) == 0 || addr != whole || !ok {
		t.Errorf("%d bytes at %d, %v", len(blocks), addr, ok)
	}
}
