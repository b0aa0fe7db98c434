//go:build linux && amd64 && !race

package epoch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPassedProtectsWithoutMembarrier has the fence made of a page, as in a
// sandbox that forbids the system call.
func TestPassedProtectsWithoutMembarrier(t *testing.T) {
	defer func(has func() bool) { hasMembarrier = has }(hasMembarrier)
	hasMembarrier = func() bool { return false }
	TestPassedProtects(t)
	if fencePage.memory == nil {
		t.Error("no page was protected")
	}
}

// TestNobodyIsMissed has a session enter and a mover move at the same moment, over
// and over. Either the mover's look finds the session inside, or the session finds
// the marker moved: a processor that lets the session's look overtake its own
// store, unhindered, breaks that a few times in so many rounds.
func TestNobodyIsMissed(t *testing.T) {
	const rounds = 400_000
	table := New()
	slot := table.Register()
	var marker, turn, entered, over, saw atomic.Uint64
	meet := func(point *atomic.Uint64, round uint64) {
		for spins := 0; point.Load() < round; spins++ {
			if spins > 1000 {
				runtime.Gosched() // the other one may need this processor
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for round := uint64(1); round <= rounds; round++ {
			meet(&turn, round)
			for range round % 16 { // now one of them is first, now the other
				entered.Load()
			}
			slot.Enter()
			saw.Store(marker.Load())
			entered.Store(round)
			meet(&over, round)
			slot.Leave()
		}
	})
	missed := 0
	for round := uint64(1); round <= rounds; round++ {
		turn.Store(round)
		for range round / 16 % 16 {
			entered.Load()
		}
		marker.Store(round)
		passed := table.Passed(table.Bump())
		meet(&entered, round)
		if passed && saw.Load() < round {
			missed++
		}
		over.Store(round)
	}
	wg.Wait()
	slot.Unregister()
	if missed > 0 {
		t.Errorf("in %d of %d rounds the session was inside, unseen, and saw the old marker", missed, rounds)
	}
}
