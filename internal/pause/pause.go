// Package pause is how those wait who try again: until they are told to stop, and not all
// at once.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d and returns false where ctx ends first.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Spread is a pause of one of many at random, from half of d on, so that whom they wait
// for is not stormed by all at once (A34). d is above 1 ns.
func Spread(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }
