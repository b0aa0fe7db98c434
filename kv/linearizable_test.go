package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/redykv/redykv/device"
)

// circumstance is what goes on while histories are written.
type circumstance struct {
	memory    int64 // of the log, in pages
	readCache float64
	filled    bool                                         // other records turn the log
	meanwhile func(st *Store, rng *rand.Rand, n int) error // again and again, n times before
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
	return st.SetMemory(8<<10 + rng.Int64N(st.opts.MaxMemory-8<<10))
}

// circumstances of TestLinearizable.
func circumstances() map[string]circumstance {
	all := []func(*Store, *rand.Rand, int) error{committing, growing, resizing, compacting(CompactByLookup), compacting(CompactByScan)}
	for kind := range checkpointKinds {
		all = append(all, checkpointing(kind))
	}
	return map[string]circumstance{
		"memory":      {memory: 64},
		"commits":     {memory: 64, meanwhile: committing},
		"device":      {memory: 8, filled: true, meanwhile: committing},
		"cache":       {memory: 8, readCache: 0.5, filled: true, meanwhile: resizing},
		"fold-over":   {memory: 16, filled: true, meanwhile: checkpointing(FoldOver)},
		"snapshot":    {memory: 32, filled: true, meanwhile: checkpointing(Snapshot)},
		"incremental": {memory: 32, filled: true, meanwhile: checkpointing(Incremental)},
		"index":       {memory: 8, filled: true, meanwhile: checkpointing(Index)},
		"growth":      {memory: 8, filled: true, meanwhile: growing},
		"lookup":      {memory: 8, filled: true, meanwhile: compacting(CompactByLookup)},
		"scan":        {memory: 8, filled: true, meanwhile: compacting(CompactByScan)},
		"everything": {memory: 16, readCache: 0.4, filled: true, meanwhile: func(st *Store, rng *rand.Rand, n int) error {
			return all[rng.IntN(len(all))](st, rng, n)
		}},
	}
}

// TestLinearizable has sessions work on few keys at once, by all kinds of
// operations in all modes, while something else goes on, and checks their
// histories.
func TestLinearizable(t *testing.T) {
	episodes := 4
	if raceEnabled {
		episodes = 1
	}
	for name, c := range circumstances() {
		for layout, sizes := range map[string][2]int{"word": {8, 8}, "wide": {8, 40}, "variable": {}} {
			t.Run(name+"/"+layout, func(t *testing.T) {
				for seed := range uint64(episodes) {
					testLinearizable(t, c, sizes, seed)
				}
			})
		}
	}
}

const (
	historyKeys    = 3
	historyWorkers = 4
	historyRounds  = 4 // of what goes on meanwhile, at least, unless they take too long
	fillerKeys     = 1 << 10
)

// historyOps are at least those of each worker in an episode.
func historyOps() int {
	if raceEnabled {
		return 60
	}
	return 300
}

// testLinearizable is one episode, on a store of its own.
func testLinearizable(t *testing.T, c circumstance, sizes [2]int, seed uint64) {
	var now atomic.Int64
	now.Store(1000)
	h := &chronicler{sizes: sizes, now: &now}
	forLog := c.memory * 512
	opts := Options{
		Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1], now: now.Load,
		Memory: int64(float64(forLog) / (1 - c.readCache)), ReadCache: c.readCache, MaxMemory: 64 << 10,
		PageSize: 512, Records: 1, QueueDepth: 4, MutableFraction: 0.5,
	}
	if seed%3 == 2 { // on one chain
		opts.hash = func([]byte) uint64 { return 42 }
	}
	st := open(t, opts)
	var stop atomic.Bool
	var rounds atomic.Int64 // of what goes on meanwhile
	var workers, background sync.WaitGroup
	var histories [historyWorkers + 1][]porcupine.Operation
	for w := range historyWorkers {
		workers.Go(func() {
			s := st.NewSession()
			defer closeAll(t, s)
			var err error
			goOn := func(done int) bool {
				return done < historyOps() || c.meanwhile != nil && rounds.Load() < historyRounds && done < 4*historyOps()
			}
			histories[w], err = h.work(s, rand.New(rand.NewPCG(seed, uint64(w))), goOn, c.filled && opts.hash == nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	if c.meanwhile != nil {
		background.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 99))
			for n := 0; !stop.Load(); n++ {
				if err := c.meanwhile(st, rng, n); err != nil {
					t.Error(err)
					return
				}
				rounds.Add(1)
			}
		})
	}
	workers.Wait()
	stop.Store(true)
	background.Wait()
	s := st.NewSession()
	for key := range uint64(historyKeys) {
		last := h.one(t, s, key)
		histories[historyWorkers] = append(histories[historyWorkers], last)
		now.Add(1)
		mortal := false
		for _, history := range histories {
			for _, o := range history {
				d := o.Input.(deed)
				mortal = mortal || d.kind == deedMortal && d.id == last.Output
			}
		}
		if after := h.one(t, s, key); mortal && after.Output != uint64(0) || !mortal && after.Output != last.Output {
			t.Errorf("key %d held %v, and %v when mortals had expired", key, last.Output, after.Output)
		}
		now.Add(-1)
	}
	var all []porcupine.Operation
	for _, history := range histories {
		all = append(all, history...)
	}
	checkHistory(t, all)
	closeAll(t, s, st)
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

// work does a worker's operations: plain calls, batches and streams.
func (c *chronicler) work(s *Session, rng *rand.Rand, goOn func(done int) bool, filled bool) (history []porcupine.Operation, err error) {
	for goOn(len(history)) && err == nil {
		batch := make([]*recorded, 1+rng.IntN(4))
		ops := make([]Op, len(batch))
		for i := range batch {
			batch[i] = c.begin(deedKind(rng.IntN(int(deedKinds))), rng.Uint64N(historyKeys))
			ops[i] = batch[i].op
		}
		switch rng.IntN(3) {
		case 0:
			for i := range ops {
				ops[i].Err = plainly(s, &ops[i])
			}
		case 1:
			_ = s.Do(ops) // each has its own error
		case 2:
			err = stream(s, ops)
		}
		for i, r := range batch {
			r.op = ops[i]
			o, e := c.end(r)
			history, err = append(history, o), errors.Join(err, e)
		}
		if filled {
			err = errors.Join(err, c.fill(s, rng.IntN(30)))
		}
	}
	return history, err
}

// fill turns the log with so many records of other keys.
func (c *chronicler) fill(s *Session, n int) error {
	for range n {
		id := c.ids.Add(1)
		if err := s.Upsert(key8(historyKeys+id%fillerKeys), c.value(nil, id)); err != nil {
			return err
		}
	}
	return nil
}
