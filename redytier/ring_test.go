package redytier

import (
	"runtime"
	"sync"
	"testing"
)

func TestFIFO(t *testing.T) {
	f := newFIFO[int](3)
	var next int
	for i := range 100 {
		for f.len() < 3 {
			f.push(i*1000 + f.len())
		}
		next = f.pop()
		if *f.front() == next {
			t.Fatalf("%d came twice", next)
		}
	}
	for !f.full() {
		f.push(1)
	}
	if f.len() != 4 {
		t.Errorf("room for %d, want 3 rounded up to 4", f.len())
	}
}

// Calls of several producers arrive once each, in each producer's order.
func TestBatchRing(t *testing.T) {
	t.Run("free", func(t *testing.T) { testBatchRing(t, newBatchRing(8, false)) })
	t.Run("locked", func(t *testing.T) { testBatchRing(t, newBatchRing(8, true)) })
}

func testBatchRing(t *testing.T, r batchRing) {
	const producers, each = 4, 5000
	var wg sync.WaitGroup
	for id := range producers {
		wg.Go(func() {
			for i := 0; i < each; {
				if r.push(call{addr: int64(id*each + i)}) == pushOK {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var seen [producers]int64
	for range producers * each {
		c := r.peek()
		for c == nil {
			runtime.Gosched()
			c = r.peek()
		}
		id := c.addr / each
		if c.addr%each != seen[id] {
			t.Fatalf("producer %d: %d where %d is due", id, c.addr%each, seen[id])
		}
		seen[id]++
		r.drop()
	}
	wg.Wait()
	if r.peek() != nil {
		t.Error("something is left")
	}
	for i := range 9 {
		if got := r.push(call{}); (got == pushOK) != (i < 8) || got == pushClosed {
			t.Errorf("push %d of 8: %v", i, got)
		}
	}
	r.close()
	for i := range 8 {
		if r.peek() == nil || r.drained() {
			t.Errorf("a closed ring has lost what was in it, %d calls were left", 8-i)
		}
		if got := r.push(call{}); got != pushClosed {
			t.Errorf("push into a closed ring: %v", got)
		}
		r.drop()
	}
	if r.peek() != nil || !r.drained() {
		t.Error("a closed ring does not end")
	}
}

func TestSegments(t *testing.T) {
	g := newSegments(MinRegionSize)
	if g.size != MinRegionSize || len(g.places) != minSegments {
		t.Fatalf("%d places in %d bytes", len(g.places), g.size)
	}
	lap := int64(minSegments)
	for _, step := range []struct {
		first, last int64
		want        admission
	}{
		{0, 3, entered},
		{3, 4, entered}, // beside a writer of the same segment
		{lap + 2, lap + 3, occupied},
		{lap + 5, lap + 5, entered},
		{5, 5, overtaken},
		{4, 5, overtaken}, // and leaves 4 again
	} {
		if got := g.enter(step.first, step.last); got != step.want {
			t.Errorf("enter %d to %d: %d, want %d", step.first, step.last, got, step.want)
		}
	}
	g.leave(0, 3)
	g.leave(3, 4)
	if got := g.enter(lap, lap+4); got != entered {
		t.Errorf("the next lap: %d", got)
	}
	if o := occupancyOf(1<<41, 5); o.segment() != 1<<41 || o.writers() != 5 {
		t.Errorf("occupancy of %d by %d", o.segment(), o.writers())
	}
	for _, capacity := range []int64{4097, 100_000, 1<<40 + 12345} {
		if g := newSegments(capacity); g.size > capacity || g.size < capacity-capacity/minSegments {
			t.Errorf("a ring of %d in %d bytes", g.size, capacity)
		}
	}
}
