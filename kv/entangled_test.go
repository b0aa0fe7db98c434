package kv

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
)

// entangled is a device that completes no write while a queue has reads that it has not polled,
// as a Redy cache does while a region moves; and no read before a write waits for that.
type entangled struct {
	device.Device

	mu      sync.Mutex    // guards the fields below
	reads   int           // that were not polled
	blocked bool          // a write has waited
	changed chan struct{} // closed when reads change
}

func (d *entangled) add(reads int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads += reads
	close(d.changed)
	d.changed = make(chan struct{})
}

// blocks reports whether writes wait, and returns a channel that is closed when that may change.
func (d *entangled) blocks() (bool, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocked = d.blocked || d.reads > 0
	return d.reads > 0, d.changed
}

func (d *entangled) hasBlocked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked
}

func (d *entangled) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &entangledQueue{Queue: q, d: d}, err
}

// entangledQueue has either reads or writes.
type entangledQueue struct {
	device.Queue
	d     *entangled
	reads int
}

func (q *entangledQueue) Read(dst []byte, addr int64, tag uint64) error {
	err := q.Queue.Read(dst, addr, tag)
	if err == nil {
		q.reads++
		q.d.add(1)
	}
	return err
}

func (q *entangledQueue) Poll(done []device.Completion) int {
	if q.reads == 0 {
		if blocked, _ := q.d.blocks(); blocked {
			return 0
		}
		return q.Queue.Poll(done)
	}
	if !q.d.hasBlocked() {
		return 0
	}
	n := q.Queue.Poll(done)
	q.reads -= n
	q.d.add(-n)
	return n
}

func (q *entangledQueue) Wait(ctx context.Context) error {
	for q.reads == 0 { // of writes
		blocked, changed := q.d.blocks()
		if !blocked {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return q.Queue.Wait(ctx)
}

// A session with pending reads polls them while it waits for space: the writes that make space
// may wait for them.
func TestReadsWhileLogIsFull(t *testing.T) {
	dev := &entangled{Device: device.NewMemory(), changed: make(chan struct{})}
	opts := small(dev, 8, 8)
	opts.QueueDepth = 128 // more than pollMost
	st := open(t, opts)
	s := st.NewSession()
	defer closeAll(t, s, st)
	const cold = 100
	for n := range uint64(1000) { // evicts the first ones from memory
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.SetContext(ctx)
	ops := make([]Op, cold)
	for i := range ops {
		ops[i].Key = key8(uint64(i))
		if err := s.Submit(&ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(1000) { // several times the memory
		if err := s.Upsert(key8(1<<32|n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	done := make([]*Op, cold)
	for n := 0; n < cold; {
		if err := s.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		for _, op := range done[:s.Poll(done)] {
			n++
			if op.Err != nil || string(op.Value) != string(op.Key) {
				t.Errorf("read of %x: %x, %v", op.Key, op.Value, op.Err)
			}
		}
	}
}
