package epoch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

func TestPassedWaitsForThoseInside(t *testing.T) {
	table := New()
	a, b := table.Register(), table.Register()
	a.Enter()
	e := table.Bump()
	if table.Passed(e) {
		t.Fatal("passed with a session inside the old epoch")
	}
	b.Enter() // in the new epoch: does not hold it up
	a.Enter() // again: it looks at everything anew
	if !table.Passed(e) {
		t.Fatal("not passed although all sessions are in the new epoch")
	}
	next := table.Bump()
	a.Leave()
	b.Leave()
	if !table.Passed(next) {
		t.Fatal("not passed although nobody is inside")
	}
	a.Enter()
	last := table.Bump()
	a.Leave()
	a.Unregister()
	if !table.Passed(last) {
		t.Fatal("an unregistered handle holds the epoch up")
	}
}

// The function of an Exclusive counts as a session inside an older epoch.
func TestPassedWaitsForExclusive(t *testing.T) {
	table := New()
	var e uint64
	table.Exclusive(func() {
		if e = table.Bump(); table.Passed(e) {
			t.Error("passed while an Exclusive runs")
		}
	})
	if !table.Passed(e) {
		t.Error("not passed although the Exclusive is over")
	}
}

// TestPassedProtects has sessions read a pointer-like marker and then the value
// that it protects, which the mover poisons once it may.
func TestPassedProtects(t *testing.T) {
	table := New()
	values := [2]atomic.Uint64{}
	values[0].Store(1)
	var marker atomic.Uint32
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			handle := table.Register()
			defer handle.Unregister()
			for !stop.Load() {
				handle.Enter()
				if values[marker.Load()].Load() == 0 {
					t.Error("a session inside saw a value that was reclaimed")
					stop.Store(true)
				}
				handle.Leave()
				runtime.Gosched() // let the mover run on few cores
			}
		}()
	}
	for i := uint32(1); i < 2000 && !stop.Load(); i++ {
		values[i%2].Store(1)
		marker.Store(i % 2)
		for e := table.Bump(); !table.Passed(e); {
			runtime.Gosched()
		}
		values[(i+1)%2].Store(0)
	}
	stop.Store(true)
	wg.Wait()
}

func TestHandleFillsItsLines(t *testing.T) {
	if size := unsafe.Sizeof(Handle{}); size != 128 {
		t.Errorf("a handle takes %d bytes, want 128", size)
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	handle := New().Register()
	for b.Loop() {
		handle.Enter()
		handle.Leave()
	}
}

func TestStalls(t *testing.T) {
	table := New()
	if s := table.Stalls(); s != (Stalls{}) {
		t.Errorf("of a new table: %+v", s)
	}
	var inside time.Duration
	for range 3 {
		table.Exclusive(func() {
			for start := time.Now(); inside <= time.Millisecond; inside = time.Since(start) {
			}
		})
	}
	s := table.Stalls()
	if s.Count != 3 || s.Max < inside || s.Last <= 0 || s.Last > s.Max || s.Sum < s.Max+s.Last {
		t.Errorf("%+v, of which the first took more than %v", s, inside)
	}
}
