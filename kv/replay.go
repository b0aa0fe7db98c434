package kv

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// replay inserts the records of a log into the index, from several goroutines. The newest record of
// a chain wins, in any order of records. No session uses the store yet.
type replay struct {
	st      *Store
	turn    sync.RWMutex // held for writing while the index grows, for reading while entries are inserted
	records atomic.Int64
}

const (
	// replayBatch is the number of records that are sorted by their buckets before they are
	// inserted: the buckets of neighbours are then in the same few pages of memory. Looking up
	// where a page is takes longer than everything else that is done for a record.
	replayBatch = 1 << 18
	replayParts = 1 << 10
	// replayAhead is the number of records whose buckets are fetched from memory before they are
	// needed.
	replayAhead = 32
)

// replayer is the visitor of one goroutine.
type replayer struct {
	*replay
	table         *index.Table // of the store, while turn is held
	batch, sorted []replayed
}

// replayed is where a record is, and the hash of its key.
type replayed struct {
	hash    uint64
	address int64
}

// Visit implements hlog.Visitor.
func (v *replayer) Visit(address int64, im hlog.Image) error {
	v.batch = append(v.batch, replayed{v.st.hash(im.Key), address})
	if len(v.batch) < replayBatch {
		return nil
	}
	return v.insertAll()
}

// End implements hlog.Visitor.
func (v *replayer) End() error { return v.insertAll() }

// insertAll inserts the records of the batch.
func (v *replayer) insertAll() error {
	v.begin()
	defer v.end()
	v.records.Add(int64(len(v.batch)))
	v.sort()
	v.batch = v.batch[:0]
	for i, f := range v.sorted {
		if i+replayAhead < len(v.sorted) {
			v.table.Prefetch(v.sorted[i+replayAhead].hash)
		}
		if err := v.insert(f); err != nil {
			return err
		}
	}
	return nil
}

// sort sorts the records of the batch by the upper bits of their buckets' numbers.
func (v *replayer) sort() {
	mask, shift := v.table.Mask(), max(v.table.Bits()-bits.Len(replayParts-1), 0)
	var next [replayParts]int // where the next record of a part goes
	for _, f := range v.batch {
		next[f.hash&mask>>shift]++
	}
	begin := 0
	for i, count := range next {
		next[i] = begin
		begin += count
	}
	v.sorted = slices.Grow(v.sorted[:0], len(v.batch))[:len(v.batch)]
	for _, f := range v.batch {
		at := &next[f.hash&mask>>shift]
		v.sorted[*at] = f
		*at++
	}
}

// begin begins a turn, end ends it.
func (v *replayer) begin() {
	v.turn.RLock()
	v.table = v.st.index.Load()
}

func (v *replayer) end() { v.turn.RUnlock() }

// insert inserts a record.
func (v *replayer) insert(f replayed) error {
	for {
		if v.table.ShouldGrow() {
			v.grow()
		}
		place, e, err := v.table.FindOrInsert(f.hash)
		switch {
		case err != nil:
			return err
		case place == index.Place{}: // the table is full, and about to grow
		case e.Address() >= f.address || place.CompareAndSwap(e, e.WithAddress(f.address)):
			return nil
		}
	}
}

// grow doubles the index, unless another goroutine has just done so.
func (v *replayer) grow() {
	v.end()
	v.turn.Lock()
	if v.st.index.Load().ShouldGrow() {
		v.st.growCrowded()
	}
	v.turn.Unlock()
	v.begin()
}
