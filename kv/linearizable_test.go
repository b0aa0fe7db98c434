package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// circumstance is the concurrent activity during histories.
type circumstance struct {
	memory    int64 // of the log, in pages
	readCache float64
	filled    bool                                         // other records evict pages
	delay     float64                                      // share of the device's operations that are delayed
	meanwhile func(st *Store, rng *rand.Rand, n int) error // called repeatedly, n times before
	proof     func(m Metrics) bool                         // reports whether the activity took place; nil: not checked
	clears    bool                                         // all keys are removed repeatedly
}

func checkpointing(kind CheckpointKind) func(*Store, *rand.Rand, int) error {
	return func(st *Store, rng *rand.Rand, _ int) error {
		_, err := st.Checkpoint(context.Background(), CheckpointOptions{Kind: kind, LogOnly: rng.IntN(2) == 0})
		return err
	}
}

func compacting(method CompactMethod) func(*Store, *rand.Rand, int) error {
	return func(st *Store, rng *rand.Rand, _ int) error {
		_, err := st.Compact(context.Background(), CompactOptions{Method: method, Memory: 1 + rng.Int64N(4000)})
		return err
	}
}

func committing(st *Store, _ *rand.Rand, _ int) error { return st.Commit(context.Background()) }

func growing(st *Store, _ *rand.Rand, n int) error {
	if n > 8 {
		return nil
	}
	return st.GrowIndex(context.Background())
}

func resizing(st *Store, rng *rand.Rand, _ int) error {
	return st.SetMemory(context.Background(), 8<<10+rng.Int64N(st.opts.MaxMemory-8<<10))
}

// locking reads a key twice while it is locked, and sometimes stores the same value again in
// between.
func locking(st *Store, rng *rand.Rand, n int) error {
	key := key8(rng.Uint64N(historyKeys))
	return st.Atomically(context.Background(), [][]byte{key}, func(s *Session) error {
		before, was := s.Read(key, nil)
		runtime.Gosched()
		if n%2 == 0 && was == nil {
			if err := s.RMW(key, modifier(func(dst, old []byte, _ bool) []byte { return append(dst, old...) })); err != nil {
				return err
			}
		}
		after, is := s.Read(key, nil)
		if !errors.Is(is, was) || string(before) != string(after) {
			return fmt.Errorf("%w a locked key had %x, %w, and then %x, %w", testrun.ErrWrong, before, was, after, is)
		}
		return nil
	})
}

// circumstances returns the circumstances of TestLinearizable.
func circumstances() map[string]circumstance {
	all := []func(*Store, *rand.Rand, int) error{committing, growing, resizing, compacting(CompactByLookup), compacting(CompactByScan)}
	for kind := range manifest.Kinds {
		all = append(all, checkpointing(kind))
	}
	compacted := func(m Metrics) bool { return m.Compaction.CopiedRecords > 0 && m.Log.Begin > 64 }
	cached := func(m Metrics) bool { return m.ReadCache.Hits > 0 }
	return map[string]circumstance{
		"memory":      {memory: 64},
		"commits":     {memory: 64, meanwhile: committing},
		"device":      {memory: 8, filled: true, meanwhile: committing},
		"slow device": {memory: 8, filled: true, delay: 0.3},
		"cache":       {memory: 8, readCache: 0.5, filled: true, meanwhile: resizing, proof: cached},
		"fold-over":   {memory: 16, filled: true, meanwhile: checkpointing(FoldOver)},
		"snapshot":    {memory: 32, filled: true, meanwhile: checkpointing(Snapshot)},
		"incremental": {memory: 32, filled: true, meanwhile: checkpointing(Incremental)},
		"index":       {memory: 8, filled: true, meanwhile: checkpointing(Index)},
		"growth":      {memory: 8, filled: true, meanwhile: growing},
		"lookup":      {memory: 8, filled: true, delay: 0.3, meanwhile: compacting(CompactByLookup), proof: compacted},
		"scan":        {memory: 8, filled: true, delay: 0.3, meanwhile: compacting(CompactByScan), proof: compacted},
		"clearing":    {memory: 64, clears: true},
		"clearing a slow device": {
			memory: 8, filled: true, delay: 0.3, clears: true, meanwhile: committing,
		},
		"clearing what is compacted": {
			memory: 8, filled: true, delay: 0.3, clears: true, meanwhile: compacting(CompactAuto),
		},
		"clearing what grows": {memory: 16, filled: true, delay: 0.1, clears: true, meanwhile: growing},
		"locks":               {memory: 8, filled: true, delay: 0.1, meanwhile: locking},
		"compaction of what is cached": {
			memory: 8, readCache: 0.5, filled: true, delay: 0.3, meanwhile: compacting(CompactAuto), proof: compacted,
		},
		"everything": {
			memory: 16, readCache: 0.4, filled: true, delay: 0.1, clears: true, meanwhile: func(st *Store, rng *rand.Rand, n int) error {
				return all[rng.IntN(len(all))](st, rng, n)
			},
		},
	}
}

// TestLinearizable executes all kinds of operations on few keys in several sessions at once,
// in all modes and under each circumstance, and checks the histories.
func TestLinearizable(t *testing.T) {
	episodes := testrun.Raced(4, 1)
	for name, c := range circumstances() {
		for layout, sizes := range map[string][2]int{"word": {8, 8}, "wide": {8, 40}, "variable": {}} {
			t.Run(name+"/"+layout, func(t *testing.T) {
				proven := c.proof == nil || machine.RaceDetector // its episodes are short
				var m Metrics
				for seed := range uint64(episodes) {
					lacking := c.proof
					if proven || seed < uint64(episodes)-1 {
						lacking = nil
					}
					m = testLinearizable(t, c, sizes, seed, lacking)
					proven = proven || c.proof(m)
				}
				if !proven {
					t.Errorf("what these circumstances are about did not take place:\n%v", m)
				}
			})
		}
	}
}

const (
	historyKeys    = 3
	historyWorkers = 4
	historyOps     = 8 // approximate number of operations of each worker in a round
	fillerKeys     = 1 << 10
)

// historyRounds is the number of rounds of an episode.
func historyRounds() int { return testrun.Raced(40, 8) }

// testLinearizable runs one episode on a new store, and returns the store's metrics. Between
// rounds other records push the keys out of memory. If lacking is not nil, rounds are added
// while it returns true: on a busy machine the activity may come late.
func testLinearizable(t *testing.T, c circumstance, sizes [2]int, seed uint64, lacking func(Metrics) bool) Metrics {
	var now atomic.Int64
	now.Store(MinExpires + 1000)
	h := &chronicler{sizes: sizes, now: &now, fillers: fillerKeys}
	opts := Options{
		Device:  device.NewFaulty(device.NewMemory(), device.FaultyOptions{Seed: seed, Delay: c.delay}),
		KeySize: sizes[0], ValueSize: sizes[1], now: now.Load,
		Memory: int64(float64(c.memory*512) / (1 - c.readCache)), ReadCache: c.readCache, MaxMemory: 64 << 10,
		PageSize: 512, Records: 1, QueueDepth: 4, MutableFraction: 0.5,
	}
	if seed%3 == 2 { // all keys in one chain
		opts.hash = func([]byte) uint64 { return 42 }
		h.fillers = 16
	}
	st := open(t, opts)
	var stop atomic.Bool
	var background sync.WaitGroup
	if c.meanwhile != nil {
		background.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 99))
			for n := 0; !stop.Load() && !t.Failed(); n++ {
				if err := c.meanwhile(st, rng, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var sessions [historyWorkers]*Session
	for w := range sessions {
		sessions[w] = st.NewSession()
	}
	var histories [historyWorkers][]porcupine.Operation
	var clears []porcupine.Operation
	rng := rand.New(rand.NewPCG(seed, 98))
	for round := 0; !t.Failed(); round++ {
		if n := historyRounds(); round >= n && (lacking == nil || round >= 10*n || lacking(st.Metrics())) {
			break
		}
		if c.filled {
			h.fill(t, sessions[0], rng.IntN(400))
		}
		if c.readCache > 0 { // records read from the device go to the cache
			for key := range uint64(historyKeys) {
				histories[0] = append(histories[0], h.one(t, sessions[0], key))
			}
		}
		var wg sync.WaitGroup
		for w, s := range sessions {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed<<32+uint64(round), uint64(w)))
				for n := 0; n < historyOps && !t.Failed(); {
					batch := h.batch(t, s, rng)
					histories[w] = append(histories[w], batch...)
					n += len(batch)
					if c.filled {
						h.fill(t, s, rng.IntN(8))
					}
				}
			})
		}
		if c.clears {
			for range rng.IntN(40) {
				runtime.Gosched()
			}
			clears = append(clears, h.clear(t, st)...)
		}
		wg.Wait()
	}
	stop.Store(true)
	background.Wait()
	all := slices.Concat(slices.Concat(histories[:]...), clears)
	for key := range uint64(historyKeys) {
		all = append(all, h.last(t, sessions[0], key))
	}
	checkHistory(t, all)
	m := st.Metrics()
	for _, s := range sessions {
		closeAll(t, s)
	}
	closeAll(t, st)
	return m
}

// last reads a key at the end, and checks its expiry.
func (c *chronicler) last(t *testing.T, s *Session, key uint64) porcupine.Operation {
	t.Helper()
	last := c.one(t, s, key)
	c.now.Add(1)
	after := c.one(t, s, key)
	c.now.Add(-1)
	expires := last.Output.(uint64)&mortal != 0
	if expires && after.Output != uint64(0) || !expires && after.Output != last.Output {
		testrun.Wrong(t, "key %d held %v, expiring %v, and %v later", key, last.Output, expires, after.Output)
	}
	return last
}

// one reads a key.
func (c *chronicler) one(t *testing.T, s *Session, key uint64) porcupine.Operation {
	t.Helper()
	r := c.begin(deedRead, key)
	r.op.Err = s.Run(&r.op)
	o, err := c.end(r)
	if err != nil {
		t.Error(err)
	}
	return o
}

// clear removes all keys. In the history this is a delete of each key.
func (c *chronicler) clear(t *testing.T, st *Store) (history []porcupine.Operation) {
	t.Helper()
	var rs [historyKeys]*recorded
	for key := range rs {
		rs[key] = c.begin(deedDelete, uint64(key))
	}
	err := st.Clear(context.Background())
	for _, r := range rs {
		o, e := c.end(r)
		history, err = append(history, o), errors.Join(err, e)
	}
	if err != nil {
		t.Error(err)
	}
	return history
}

// batch executes a few operations by plain calls, a batch or a stream.
func (c *chronicler) batch(t *testing.T, s *Session, rng *rand.Rand) (history []porcupine.Operation) {
	batch := make([]*recorded, 1+rng.IntN(4))
	ops := make([]Op, len(batch))
	for i := range batch {
		batch[i] = c.begin(deedKind(rng.IntN(int(deedKinds))), rng.Uint64N(historyKeys))
		if op := &batch[i].op; c.mayBeByWord(batch[i].kind) && rng.IntN(2) == 0 {
			op.ModifyWord, op.Modify = wordForm(op.Modify), nil
		}
		ops[i] = batch[i].op
	}
	var err error
	switch rng.IntN(3) {
	case 0:
		for i := range ops {
			ops[i].Err = plainly(s, &ops[i])
		}
	case 1:
		_ = s.Do(context.Background(), ops) // each has its own error
	case 2:
		err = stream(s, ops)
	}
	for i, r := range batch {
		r.op = ops[i]
		o, e := c.end(r)
		history, err = append(history, o), errors.Join(err, e)
	}
	if err != nil {
		t.Error(err)
	}
	return history
}

// mayBeByWord reports whether a WordModifier, which does not change expiries, may execute a
// deed.
func (c *chronicler) mayBeByWord(kind deedKind) bool {
	return c.sizes[1] == 8 && (kind == deedCarry || kind == deedKeep || kind == deedRemove)
}

// fill writes n records of other keys to the log.
func (c *chronicler) fill(t *testing.T, s *Session, n int) {
	for range n {
		id := c.ids.Add(1)
		if err := s.Upsert(key8(historyKeys+id%c.fillers), c.value(nil, id)); err != nil {
			t.Error(err)
			return
		}
	}
}
