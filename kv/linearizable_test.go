package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
)

// event is one operation as its session saw it: it took effect at one moment
// between began and ended, if the store is linearizable. A value is known by
// the number of the operation that wrote it; 0 is no value.
type event struct {
	kind         OpKind
	began, ended int64
	saw          uint64 // a read's result, or what a Modifier was given last
	wrote        uint64 // what the operation left behind
}

func (e event) String() string {
	return fmt.Sprintf("[%d,%d] kind %d saw %d wrote %d", e.began, e.ended, e.kind, e.saw, e.wrote)
}

// linearizable says whether some order of the events that respects their times
// leads from a state to another, each seeing what the one before it left.
func linearizable(events []event, from, to uint64) bool {
	type place struct {
		done  uint32
		state uint64
	}
	seen := map[place]bool{}
	var search func(place) bool
	search = func(p place) bool {
		if p.done == 1<<len(events)-1 {
			return p.state == to
		}
		if seen[p] {
			return false
		}
		seen[p] = true
		first := int64(1<<63 - 1) // whoever began after this end comes later
		for i, e := range events {
			if p.done&(1<<i) == 0 {
				first = min(first, e.ended)
			}
		}
		for i, e := range events {
			if p.done&(1<<i) != 0 || e.began > first {
				continue
			}
			next := place{p.done | 1<<i, p.state}
			if (e.kind == OpRead || e.kind == OpRMW) && e.saw != p.state {
				continue
			}
			if e.kind != OpRead {
				next.state = e.wrote
			}
			if search(next) {
				return true
			}
		}
		return false
	}
	return search(place{0, from})
}

func TestLinearizableTellsGoodFromBad(t *testing.T) {
	write := event{kind: OpUpsert, began: 1, ended: 4, wrote: 7}
	stale := event{kind: OpRead, began: 5, ended: 6, saw: 0}
	early := event{kind: OpRead, began: 2, ended: 3, saw: 0}
	if linearizable([]event{write, stale}, 0, 7) || !linearizable([]event{write, early}, 0, 7) {
		t.Error("the checker takes a stale read, or refuses a concurrent one")
	}
	lost := []event{{kind: OpRMW, began: 1, ended: 4, saw: 0, wrote: 8}, {kind: OpRMW, began: 2, ended: 3, saw: 0, wrote: 9}}
	if linearizable(lost, 0, 8) || linearizable(lost, 0, 9) {
		t.Error("the checker takes a lost update")
	}
}

// TestLinearizable has sessions work on few keys at once, in rounds, while the
// log turns: keys are updated in place, copied, cold, deleted, and changed while
// a read-modify-write of theirs waits for the device or takes its record from
// the read cache. After each round every key's history must have an order.
func TestLinearizable(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "wide": {8, 40}, "variable": {}} {
		t.Run(name, func(t *testing.T) { testLinearizable(t, sizes, 0) })
		t.Run(name+" with a cache", func(t *testing.T) { testLinearizable(t, sizes, 0.5) })
	}
}

func testLinearizable(t *testing.T, sizes [2]int, readCache float64) {
	opts := historyOptions(sizes)
	opts.Memory, opts.ReadCache = int64(float64(opts.Memory)/(1-readCache)), readCache
	opts.MaxMemory = 64 << 10
	h := &historian{sizes: sizes, st: open(t, opts)}
	h.play(t, historyRounds())
	m := h.st.Metrics()
	if readCache > 0 && (m.ReadsCache == 0 || m.CacheEntries == 0) {
		t.Errorf("the read cache took no part:\n%v", m)
	}
	closeAll(t, h.st)
}

// TestLinearizableWhileTheIndexGrows is TestLinearizable over and over on a fresh
// index that doubles in every round.
func TestLinearizableWhileTheIndexGrows(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			const doublings = 6
			for range historyRounds() / doublings / 2 {
				opts := historyOptions(sizes)
				opts.indexBits = 4
				h := &historian{sizes: sizes, st: open(t, opts)}
				h.meanwhile = func() error { return h.st.GrowIndex(context.Background()) }
				h.play(t, doublings)
				closeAll(t, h.st)
			}
		})
	}
}

func historyRounds() int {
	if raceEnabled {
		return 400
	}
	return 3000
}

func historyOptions(sizes [2]int) Options {
	return Options{
		Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1],
		Memory: 4 << 10, PageSize: 512, Records: 1 << 14, QueueDepth: 4, MutableFraction: 0.5,
	}
}

// historian plays rounds and keeps their history.
type historian struct {
	st    *Store
	sizes [2]int
	clock atomic.Int64
	ids   atomic.Uint64 // of operations, and so of values

	meanwhile func() error // called in every round, unless nil
}

const (
	historyKeys    = 2
	historyWorkers = 4
	historyOps     = 3 // of each worker in a round
	fillerKeys     = 1 << 12
)

// value is operation id's: its length follows from it where it may vary.
func (h *historian) value(dst []byte, id uint64) []byte {
	n := h.sizes[1]
	if h.sizes[0] == 0 {
		n = 8 + int(id*7%40)
	}
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, id)
	for len(dst)-at < n {
		dst = append(dst, byte(id))
	}
	return dst
}

// id is the inverse of value, and checks that nothing is torn.
func (h *historian) id(value []byte) (uint64, error) {
	if len(value) < 8 {
		return 0, fmt.Errorf("value %x", value)
	}
	id := binary.LittleEndian.Uint64(value)
	if !bytes.Equal(value, h.value(nil, id)) {
		return 0, fmt.Errorf("torn value %x", value)
	}
	return id, nil
}

func (h *historian) play(t *testing.T, rounds int) {
	var workers [historyWorkers]*Session
	for i := range workers {
		workers[i] = h.st.NewSession()
		defer closeAll(t, workers[i])
	}
	filler := h.st.NewSession()
	defer closeAll(t, filler)
	rng := rand.New(rand.NewPCG(1, 1))
	var state [historyKeys]uint64
	for round := range rounds {
		h.fill(t, filler, rng.IntN(200)) // now and then all keys go cold
		var wg sync.WaitGroup
		var events [historyWorkers][historyKeys][]event
		for w, s := range workers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(w)))
				for range historyOps {
					key := rng.Uint64N(historyKeys)
					e, err := h.one(s, key8(key), OpKind(rng.IntN(4)))
					if err != nil {
						t.Error(err)
					}
					events[w][key] = append(events[w][key], e)
				}
			})
		}
		h.fill(t, filler, rng.IntN(60))
		if h.st.cache != nil && rng.IntN(8) == 0 { // what is in memory, and in the cache, changes
			if err := h.st.SetMemory(4<<10 + rng.Int64N(16<<10)); err != nil {
				t.Error(err)
			}
		}
		if rng.IntN(4) == 0 {
			if err := h.st.Commit(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if h.meanwhile != nil {
			if err := h.meanwhile(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		for key := range state {
			var all []event
			for w := range workers {
				all = append(all, events[w][key]...)
			}
			last, err := h.one(filler, key8(uint64(key)), OpRead)
			if err != nil {
				t.Error(err)
			}
			if !linearizable(all, state[key], last.saw) {
				t.Fatalf("round %d, key %d, from %d to %d: no order of\n%v", round, key, state[key], last.saw, all)
			}
			state[key] = last.saw
		}
		if t.Failed() {
			return
		}
	}
}

// one carries an operation out and tells what happened.
func (h *historian) one(s *Session, key []byte, kind OpKind) (e event, err error) {
	id := h.ids.Add(1)
	e = event{kind: kind, began: h.clock.Add(1), wrote: id}
	switch kind {
	case OpRead:
		var v []byte
		if v, err = s.Read(key, nil); err == nil {
			e.saw, err = h.id(v)
		} else if errors.Is(err, ErrNotFound) {
			err = nil
		}
	case OpUpsert:
		err = s.Upsert(key, h.value(nil, id))
	case OpDelete:
		e.wrote = 0
		err = s.Delete(key)
	case OpRMW:
		var bad error
		err = s.RMW(key, modifier(func(dst, old []byte, found bool) []byte {
			if e.saw, bad = 0, nil; found {
				e.saw, bad = h.id(old)
			}
			for range id % 4 { // markers move while this session is inside
				runtime.Gosched()
			}
			return h.value(dst, id)
		}))
		err = errors.Join(err, bad)
	}
	e.ended = h.clock.Add(1)
	return e, err
}

// fill turns the log with so many records of other keys.
func (h *historian) fill(t *testing.T, s *Session, n int) {
	for range n {
		id := h.ids.Add(1)
		if err := s.Upsert(key8(historyKeys+id%fillerKeys), h.value(nil, id)); err != nil {
			t.Error(err)
			return
		}
	}
}
