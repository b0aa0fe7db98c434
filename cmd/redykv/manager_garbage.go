package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

// A manager's live heap is small, and calls wait for a processor while garbage is collected.
// So it keeps up to four times as much garbage as Go's default, but then no more than
// garbageMost, so that a manager of 20,000 watched caches takes less than 1 GiB.
const (
	garbagePercent = 400 // as GOGC
	garbageLeast   = 100 // Go's default
	garbageMost    = 256 << 20
)

// gcPercent returns the GOGC for a heap with so many live bytes.
func gcPercent(live uint64) int {
	return int(min(max(garbageMost*100/max(live, 1), garbageLeast), garbagePercent))
}

// boundGarbage sets the manager's GOGC until ctx ends, unless the environment has it.
func boundGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for present := 0; ; {
		metrics.Read(live)
		if want := gcPercent(live[0].Value.Uint64()); want != present {
			present = want
			debug.SetGCPercent(present) // stops all goroutines for a moment
		}
		if !clock.Sleep(ctx, time.Second) {
			return
		}
	}
}
