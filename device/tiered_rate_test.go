package device_test

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/testrun"
)

// handClock advances only by pass, and reports every timer that is set.
type handClock struct {
	armed chan alarm

	mu  sync.Mutex
	now time.Time
}

type alarm struct {
	after time.Duration
	call  func()
}

// Stop implements clock.Timer. The callback is not called any more.
func (alarm) Stop() bool { return true }

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *handClock) AfterFunc(d time.Duration, call func()) clock.Timer {
	a := alarm{d, call}
	c.armed <- a
	return a
}

// busy is a device whose operations take time of a clock, as those of a loaded device do. It
// records how many are pending at once, and their sizes.
type busy struct {
	device.Device
	clock *handClock
	takes atomic.Int64 // nanoseconds

	pending, most, largest atomic.Int64
}

func (d *busy) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &busyQueue{q, d}, err
}

type busyQueue struct {
	device.Queue
	d *busy
}

func (q *busyQueue) Read(dst []byte, addr int64, tag uint64) error {
	q.d.most.Store(max(q.d.most.Load(), q.d.pending.Add(1)))
	q.d.largest.Store(max(q.d.largest.Load(), int64(len(dst))))
	return q.Queue.Read(dst, addr, tag)
}

func (q *busyQueue) Poll(done []device.Completion) int {
	n := q.Queue.Poll(done)
	q.d.pending.Add(-int64(n))
	q.d.clock.pass(time.Duration(int64(n) * q.d.takes.Load()))
	return n
}

// A refill does not exceed its rate, and reaches it. Other operations continue while it rests.
func TestRefillRate(t *testing.T) {
	defer testrun.NoLeaks(t)
	const (
		size     = 1 << 20
		capacity = 1<<19 + 100<<10
		piece    = 64 << 10
		share    = 10 * time.Millisecond // duration of a piece at the refill's rate
		rate     = piece * int64(time.Second/share)
	)
	c := &handClock{armed: make(chan alarm, 1), now: time.Unix(0, 0)}
	last := &busy{Device: device.NewMemory(), clock: c}
	b := newBench(t, started(t, last))
	b.write(string(bytes.Repeat([]byte("0123456789abcdef"), size/16)), 0)
	if err := b.q.Close(); err != nil {
		t.Fatal(err)
	}
	last.pending.Store(0)
	first := newLossy(1, size, capacity)
	first.steady = true
	d := device.NewTieredWith(device.TieredOptions{Logger: quiet, RefillRate: rate}, first, last)
	device.PaceRefills(d, c)
	if err := d.Start(size); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, d)
	filled := func() int64 { return int64(d.Metrics()[0].Refilled) }
	var elapsed time.Duration // since the first piece began
	before := int64(0)
	for pieces := 1; d.Metrics()[0].Missing > 0; pieces++ {
		a := testrun.Receive(t, "a piece is copied", c.armed) // a piece was copied, and the rest has begun
		copied := filled() - before
		if copied <= 0 || copied > piece {
			t.Fatalf("%d bytes in one piece", copied)
		}
		took := time.Duration(last.takes.Load())
		want := time.Duration(float64(copied)/float64(rate)*float64(time.Second)) - took
		if a.after != want {
			t.Fatalf("piece %d of %d bytes took %v, and the refill rests for %v, not %v", pieces, copied, took, a.after, want)
		}
		elapsed += took + a.after
		if before += copied; before > int64(math.Ceil(elapsed.Seconds()*float64(rate))) {
			t.Fatalf("%d bytes in %v, at %d a second", before, elapsed, rate)
		}
		if pieces%16 == 0 { // so few that the tiers are idle
			b.wantRead("0123", 0, 1) // does not wait for the rest's end
		}
		if filled() != before {
			t.Fatal("it did not rest")
		}
		last.takes.Store(int64([]time.Duration{0, share / 4, share / 2}[pieces%3]))
		if d.Metrics()[0].Missing > 0 {
			c.pass(a.after)
			a.call()
		}
	}
	if filled() != capacity {
		t.Errorf("%d bytes were copied", filled())
	}
	if last.most.Load() != 1 || last.largest.Load() > piece {
		t.Errorf("%d reads at a time, of up to %d bytes", last.most.Load(), last.largest.Load())
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
