package server

import (
	"context"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

const (
	// slack is how much time that passed unused a throttle makes up for: timers
	// are late by a millisecond.
	slack = 10 * time.Millisecond
	// pulse is how long a chunk of a throttled pull takes, at most: what reads at
	// a low rate shall not do so in bursts that others feel.
	pulse = 5 * time.Millisecond
	// leastChunk is what is read at once however low the rate is.
	leastChunk = 4 << 10
)

// throttle paces a reader to a number of bytes a second: each chunk is paid for
// with the time that it should have taken, before the next. The zero rate is
// unlimited. One goroutine.
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

// widen has chunks be of so many bytes, or of what the rate allows.
func (t *throttle) widen(most int) {
	t.chunk = most
	if t.perSec > 0 {
		t.chunk = int(min(max(t.perSec*pulse.Seconds(), leastChunk), float64(most)))
	}
}

// ready says whether take would not wait.
func (t *throttle) ready() bool { return t.perSec == 0 || !time.Now().Before(t.next) }

// take waits until all that was taken before is paid for, or ctx ends.
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

// settle waits until what was taken is paid for, or ctx ends.
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
