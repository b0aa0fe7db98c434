package redytier

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

var (
	chaosRuns  = flag.Int("chaos.runs", testrun.Scale(1, 1, 10), "how many seeds TestChaos plays with each transport and configuration")
	chaosSteps = flag.Int("chaos.steps", 6, "how much TestChaos does to each cache")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "TestChaos's first seed; 0: as testrun.Seed")
)

// cellHistory is what a chaos worker knows of 8 bytes that only it writes: the writes to them
// in program order, back to the last that certainly took effect. A failed write may have taken
// effect, until a later one certainly has.
type cellHistory struct{ writes []*attempt }

type attempt struct {
	value  uint64
	losses uint64 // reported for the word's region before the write
	ended  bool
	err    error
}

// allowed returns the values that a read may return that was issued after n writes. Zero is
// allowed only if no write has succeeded since the last reported loss of the region.
func (w *cellHistory) allowed(n int, losses uint64) (values []uint64) {
	for i := n - 1; i >= 0; i-- {
		values = append(values, w.writes[i].value)
		if w.writes[i].ended && w.writes[i].err == nil {
			if w.writes[i].losses < losses {
				values = append(values, 0)
			}
			return values
		}
	}
	return append(values, 0)
}

// losses counts, by region, the DataLost events: the region may answer with zeros afterwards.
type losses struct {
	size    int64
	regions [64]atomic.Uint64
}

func (l *losses) tell(e Event) {
	if e.Kind == DataLost {
		for at := e.From; at < e.To; at += l.size {
			l.regions[at/l.size].Add(1)
		}
	}
}

func (l *losses) of(addr int64) uint64 { return l.regions[addr/l.size].Load() }

// chaosWorker writes and reads words of its part of a cache. Operations may fail; those that
// succeed must be correct.
type chaosWorker struct {
	*pump
	r      *rand.Rand
	from   int64
	words  []cellHistory
	losses *losses
	next   uint64
	oks    int
}

func (w *chaosWorker) round() {
	n := 1 + w.r.IntN(1<<w.r.IntN(11))
	at := w.r.IntN(len(w.words))
	n = min(n, len(w.words)-at)
	buf := make([]byte, 8*n)
	addr := w.from + 8*int64(at)
	if w.r.IntN(2) == 0 {
		attempts := make([]*attempt, n)
		for i := range attempts {
			w.next++
			attempts[i] = &attempt{value: w.next, losses: w.losses.of(addr + 8*int64(i))}
			binary.LittleEndian.PutUint64(buf[8*i:], w.next)
			w.words[at+i].writes = append(w.words[at+i].writes, attempts[i])
		}
		w.do(true, buf, addr, func(c device.Completion) {
			w.ended(c, len(buf), addr)
			for _, a := range attempts {
				a.ended, a.err = true, c.Err
			}
		})
		return
	}
	known := make([]int, n)
	for i := range known {
		known[i] = len(w.words[at+i].writes)
	}
	w.do(false, buf, addr, func(c device.Completion) {
		w.ended(c, len(buf), addr)
		if c.Err != nil {
			return
		}
		for i := range known {
			got := binary.LittleEndian.Uint64(buf[8*i:])
			if allowed := w.words[at+i].allowed(known[i], w.losses.of(addr+8*int64(i))); !slices.Contains(allowed, got) {
				w.t.Errorf("%v word at %d is %d, want one of %d", testrun.ErrWrong, addr+8*int64(i), got, allowed)
				return
			}
		}
	})
}

func (w *chaosWorker) ended(c device.Completion, n int, addr int64) {
	switch {
	case c.Err == nil && c.N == n:
		w.oks++
	case !errors.Is(c.Err, ErrRegionUnavailable):
		w.t.Errorf("%d bytes at %d: %+v", n, addr, c)
	}
}

// settle drops decided writes from the histories. No operation is pending.
func (w *chaosWorker) settle() {
	w.drain()
	for i := range w.words {
		writes := w.words[i].writes
		for k := len(writes) - 1; k > 0; k-- {
			if writes[k].err == nil {
				w.words[i].writes = slices.Clone(writes[k:])
				break
			}
		}
	}
}

// TestChaos lets sessions write and read at random while regions move, the cache is reshaped
// and reconfigured, VMs are reclaimed, servers die, sessions are opened and closed,
// connections are cut and delayed, and frames are corrupted. Every operation ends once. A read
// that succeeds is correct, in the order of its session's calls.
func TestChaos(t *testing.T) {
	seed := testrun.Seed(t, *chaosSeed) // incremented after each run
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		if len(c.vms) < 2 {
			return
		}
		for range *chaosRuns {
			t.Logf("seed %d", seed)
			chaos(t, newCluster(t, c.servers[0].Transport(), 4, 4<<20), cfg, seed)
			seed++
		}
	})
}

// callBacks reads by the callback API until over is set. Each call gets its callback.
func callBacks(t *testing.T, cache *Cache, capacity int64, over *atomic.Bool) {
	client := cache.NewClient()
	for at := int64(0); !over.Load() && !t.Failed(); at = (at + 4099) % (capacity - 8) {
		var calls sync.WaitGroup // panics if a callback runs twice
		for range 16 {
			calls.Add(1)
			err := client.Read(t.Context(), make([]byte, 8), at, func(_ int, err error) {
				if err != nil && !errors.Is(err, ErrRegionUnavailable) {
					t.Error(err)
				}
				calls.Done()
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
		calls.Wait()
	}
}

func chaos(t *testing.T, c *cluster, cfg Config, seed uint64) {
	var faulty *fabric.Faulty
	cfg.wrap = func(p fabric.Provider) fabric.Provider {
		faulty = fabric.WithFaults(p, fabric.FaultOptions{})
		return faulty
	}
	lost := &losses{size: cfg.RegionSize}
	cfg.OnEvent = lost.tell
	cfg.WaitForLost = seed%2 == 0
	cfg.Migration = Migration{Parallel: 1 + int(seed%3), PauseAll: seed%4 == 3}
	cache := c.create(t, cfg)
	const sessions = 3
	var over atomic.Bool
	var wg sync.WaitGroup
	each := cfg.Capacity / 8 / sessions
	workers := make([]*chaosWorker, sessions)
	for id := range workers {
		r := rand.New(rand.NewPCG(seed, uint64(id)))
		workers[id] = &chaosWorker{
			pump: newPump(t, cache, 1+r.IntN(16)), r: r, from: 8 * each * int64(id),
			words: make([]cellHistory, each), losses: lost, next: uint64(id) << 32,
		}
	}
	faulty.Set(fabric.FaultOptions{Seed: seed, Cut: 0.0005, Error: 0.001, Corrupt: 0.001, Delay: 0.01})
	for _, w := range workers {
		wg.Go(func() {
			defer w.close()
			for i := 0; !over.Load() && !t.Failed(); i++ {
				if w.round(); i%64 == 63 {
					w.settle()
				}
			}
		})
	}
	wg.Go(func() { callBacks(t, cache, cfg.Capacity, &over) })
	r := rand.New(rand.NewPCG(seed, 99))
	alive := len(c.vms)
	for range *chaosSteps {
		var err error
		what := "" // no operation
		switch r.IntN(8) {
		case 0:
			configuration := configurations[r.IntN(len(configurations))]
			what, err = fmt.Sprintf("reconfigure to %+v", configuration), cache.Reconfigure(t.Context(), configuration)
		case 1:
			if alive > 2 { // one can die, and another can be left
				alive--
				c.kill(alive)
				what = "kill"
			}
		case 2: // added bytes belong to no worker
			capacity, slo := cfg.Capacity+r.Int64N(50_000), SLO{RecordSize: r.IntN(2)}
			what, err = fmt.Sprintf("reshape to %d, %+v", capacity, slo), cache.Reshape(t.Context(), capacity, slo)
		case 3: // the controller leaves the VM during the next operations
			vm := c.vms[r.IntN(alive)].Id
			what = "reclaim " + vm
			c.events <- &managerv1.WatchResponse{
				Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: vm, LeftMs: time.Minute.Milliseconds(),
			}
		case 4:
			var s *Session
			if s, err = cache.NewSession(4); err == nil {
				what, err = "a session", errors.Join(s.Read(make([]byte, cfg.Capacity), 0, 0), s.Close())
			}
		default:
			vm := c.vms[r.IntN(alive)].Id
			what, err = "migrate from "+vm, cache.Migrate(t.Context(), vm)
		}
		t.Logf("%s: %v", what, err) // may fail, but not harm
	}
	faulty.Set(fabric.FaultOptions{})
	over.Store(true)
	wg.Wait()
	oks := 0
	for _, w := range workers {
		oks += w.oks
	}
	if oks == 0 {
		t.Error("nothing succeeded")
	}
	t.Logf("%d operations succeeded, faults %+v", oks, faulty.Counts())
	// Without faults all of the cache answers again.
	testrun.Until(t, "the whole cache answers", func() bool { return cache.Err() == nil })
	if err := cache.Delete(context.Background()); err != nil {
		t.Error(err)
	}
}
