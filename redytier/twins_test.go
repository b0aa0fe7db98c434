package redytier

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
)

// What was read of a mirrored region stays until a write when the mirror takes the region's place, whatever
// two sessions wrote to the same bytes at a time.
func TestMirrorsKeepTheOrder(t *testing.T) {
	for _, transport := range []string{"mem", "tcp", "shm"} {
		for name, config := range map[string]Configuration{
			"one-sided": oneSided, "batches": {ClientThreads: 2, ServerThreads: 1, BatchSize: 64, QueueDepth: 2},
		} {
			t.Run(transport+" "+name, func(t *testing.T) { testMirrorsKeepTheOrder(t, transport, config) })
		}
	}
}

func testMirrorsKeepTheOrder(t *testing.T, transport string, config Configuration) {
	const words, rounds = 2048, 3
	c := newCluster(t, transport, 2, 1<<20)
	c.refuse = func(r *managerv1.ReallocateRequest) error { r.AvoidVms = []string{"vm-0"}; return nil }
	cache := c.create(t, Config{Capacity: 8 * words, RegionSize: 8 * words, Configuration: config})
	places, endpoints := mirrored(t, cache)
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			p := newPump(t, cache, 64)
			for round := range rounds {
				for i := range words {
					word := binary.LittleEndian.AppendUint64(nil, uint64(w+1)<<32|uint64(round+1))
					p.do(true, word, int64(8*i), func(c device.Completion) {
						if c.Err != nil || c.N != 8 {
							t.Errorf("%+v", c)
						}
					})
				}
			}
			p.drain()
			p.close()
		})
	}
	writers.Wait()
	if n := len(cache.table.Load().regions.at(0).twins.all); n != 0 {
		t.Errorf("%d writes have not ended", n)
	}
	read := func() []byte {
		t.Helper()
		p, all := newPump(t, cache, 1), make([]byte, 8*words)
		p.do(false, all, 0, func(c device.Completion) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		p.drain()
		p.close()
		return all
	}
	before := read()
	if err := cache.commit(places, endpoints, 8*words, config); err != nil {
		t.Fatal(err)
	}
	differ := 0
	for after := read(); len(after) > 0; before, after = before[8:], after[8:] {
		if !bytes.Equal(before[:8], after[:8]) {
			differ++
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d words have changed without a write", differ, words)
	}
}

// A write to both places waits for earlier ones that it overlaps, and only for those.
func TestTwinsTakeTurns(t *testing.T) {
	all := new(twins)
	var s Session
	a, b, c := all.add(&s, 0, 10), all.add(&s, 5, 15), all.add(&s, 10, 20)
	check := func(w *twin, want bool) {
		t.Helper()
		if w.first() != want {
			t.Errorf("the write to %d to %d is first: %v", w.from, w.to, !want)
		}
	}
	check(a, true)
	check(b, false)
	check(c, false) // b is before it
	a.left += 20
	a.settle(1)
	a.settle(10)
	check(b, false)
	a.settle(10)
	check(b, true)
	check(c, false)
	b.settle(1) // given up
	check(c, true)
	c.settle(1)
	if len(all.all) > 0 {
		t.Errorf("%d writes have not ended", len(all.all))
	}
}
