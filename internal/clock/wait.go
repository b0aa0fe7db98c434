package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Jitter returns a random duration of at least d/2 and less than d, so that many callers
// that retry do not all do so at the same time (A34). d is above 1 ns.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }
