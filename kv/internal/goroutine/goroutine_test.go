package goroutine

import (
	"runtime"
	"sync"
	"testing"
)

// grow makes the goroutine's stack move.
func grow(n int) int {
	var room [1024]byte
	if n == 0 {
		return int(room[n])
	}
	return grow(n-1) + int(room[n%len(room)])
}

// TestSelf asks many goroutines that run at once, again after their stacks have moved
// and others have run on their threads.
func TestSelf(t *testing.T) {
	if Self() == 0 {
		t.Skip("not told on " + runtime.GOARCH)
	}
	const n = 100
	var seen [n]uint64
	var begun, ended sync.WaitGroup
	begun.Add(n)
	for i := range n {
		ended.Go(func() {
			seen[i] = Self()
			begun.Done()
			begun.Wait() // all are there at once
			grow(100)
			runtime.Gosched()
			if again := Self(); again != seen[i] {
				t.Errorf("goroutine %d is %x, and then %x", i, seen[i], again)
			}
		})
	}
	ended.Wait()
	of := make(map[uint64]int)
	for i, id := range seen {
		if other, ok := of[id]; ok || id == 0 || id == Self() {
			t.Errorf("goroutine %d is %x, as is %d", i, id, other)
		}
		of[id] = i
	}
}
