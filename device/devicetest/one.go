package devicetest

import (
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// Read reads into dst, on a new queue, and returns the completion.
func Read(t testing.TB, d device.Device, dst []byte, addr int64) device.Completion {
	t.Helper()
	return one(t, d, func(q device.Queue, tag uint64) error { return q.Read(dst, addr, tag) })
}

// Write writes src, on a new queue, and returns the last event's completion.
func Write(t testing.TB, d device.Device, src []byte, addr int64) device.Completion {
	t.Helper()
	return one(t, d, func(q device.Queue, tag uint64) error { return q.Write(src, addr, tag) })
}

// one carries out the operation that start enqueues. It fails the test if the queue does not
// behave as a queue; the caller checks the result of the operation.
func one(t testing.TB, d device.Device, start func(q device.Queue, tag uint64) error) device.Completion {
	t.Helper()
	const tag = 7
	q, err := d.NewQueue(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := start(q, tag); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if err := errors.Join(q.Submit(), q.Wait(ctx)); err != nil {
			t.Fatal(err)
		}
		var done [3]device.Completion
		n := q.Poll(done[:])
		if n == 0 {
			t.Fatal("Wait returned, and Poll has nothing")
		}
		for i, c := range done[:n] {
			if last := c.Event != device.Committed; c.Tag != tag || last && i < n-1 {
				t.Fatalf("%d completions of one operation, which is %d: %+v", n, tag, done[:n])
			}
		}
		if c := done[n-1]; c.Event != device.Committed {
			return c
		}
	}
}
