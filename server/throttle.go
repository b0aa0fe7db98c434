package server

import (
	"context"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

const (
	// slack is the unused time that a throttle makes up for: timers are late by a
	// millisecond.
	slack = 10 * time.Millisecond
	// pulse bounds the time of one chunk of a throttled pull, so that a low rate does not
	// come in bursts that delay other traffic.
	pulse = 5 * time.Millisecond
	// leastChunk is the least size of a read, in bytes.
	leastChunk = 4 << 10
)

// throttle limits a reader to a number of bytes per second: before each chunk it waits for
// the time that the last one should have taken. Rate 0 is unlimited. It belongs to one
// goroutine.
type throttle struct {
	chunk  int     // bytes to take at once
	perSec float64 // 0: unlimited
	next   time.Time
}

func newThrottle(bytesPerSecond uint64) throttle {
	t := throttle{perSec: float64(bytesPerSecond)}
	t.widen(pullChunk)
	return t
}

// widen sets the size of chunks to most bytes, or to what the rate allows.
func (t *throttle) widen(most int) {
	t.chunk = most
	if t.perSec > 0 {
		t.chunk = int(min(max(t.perSec*pulse.Seconds(), leastChunk), float64(most)))
	}
}

// ready reports whether take would return at once.
func (t *throttle) ready() bool { return t.perSec == 0 || !time.Now().Before(t.next) }

// take waits until the time of all chunks before has passed, or ctx ends.
func (t *throttle) take(ctx context.Context, n int) error {
	if t.perSec == 0 {
		return nil
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if earliest := time.Now().Add(-slack); t.next.Before(earliest) {
		t.next = earliest
	}
	t.next = t.next.Add(time.Duration(float64(n) / t.perSec * float64(time.Second)))
	return nil
}

// settle waits until the time of all chunks has passed, or ctx ends.
func (t *throttle) settle(ctx context.Context) error {
	wait := time.Until(t.next)
	if wait <= 0 {
		return nil
	}
	if !clock.Sleep(ctx, wait) {
		return context.Cause(ctx)
	}
	return nil
}
