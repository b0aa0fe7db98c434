package devicetest

import (
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
	q := newQueue(t, d, 1)
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	must(t, start(q, tag))
	var last device.Completion
	ended := false
	poll(t, q, 1, func(c device.Completion) {
		if c.Tag != tag || ended {
			t.Fatalf("completion %+v of one operation, which is %d", c, tag)
		}
		last, ended = c, c.Event != device.Committed
	})
	return last
}
