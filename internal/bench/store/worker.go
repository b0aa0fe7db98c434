package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// clockEvery is the number of operations between two reads of the clock;
// clockEveryBytes the number of bytes, for large values.
const (
	clockEvery      = 256
	clockEveryBytes = 64 << 10
)

// worker is one thread: a session, buffers that let it operate without allocating, and
// record numbers. It belongs to one goroutine at a time.
type worker struct {
	session   *kv.Session
	valueSize int
	numbers   map[ycsb.Distribution]*sequence
	coins     rand.PCG // chooses between read and upsert

	ops   []kv.Op
	free  []*kv.Op // of ops, not pending
	done  []*kv.Op
	key   []byte // of plain calls…
	value []byte // …and their value
	rmw   kv.Op  // a plain read-modify-write…
	// The same read-modify-write for one-word values.
	rmwWord kv.WordModifier

	yard        yardstick
	implausible int // values that the generator checked
}

// sequence is a ring of record numbers.
type sequence struct {
	numbers []uint32
	next    int
}

// take returns the next n numbers; n is at most the length of the sequence.
func (q *sequence) take(n int) []uint32 {
	if q.next+n > len(q.numbers) {
		q.next = 0
	}
	q.next += n
	return q.numbers[q.next-n : q.next]
}

// sequenceLength returns the length of a sequence. The longest names two gigabytes of
// different lines.
func sequenceLength(records int64) int {
	n := 1 << 14 // more than the deepest queue
	for n < 1<<24 && int64(n) < records {
		n *= 2
	}
	return n
}

// drawSequences draws the numbers of worker i.
func drawSequences(s *Spec, i int) (map[ycsb.Distribution]*sequence, error) {
	all := make(map[ycsb.Distribution]*sequence)
	for _, d := range append([]ycsb.Distribution{ycsb.Uniform}, s.Distributions...) {
		if all[d] != nil {
			continue // the yardsticks' is also the cells'
		}
		generator, err := d.Generator(s.Records, int64(i)+1)
		if err != nil {
			return nil, fmt.Errorf("storebench: %w", err)
		}
		numbers := make([]uint32, sequenceLength(s.Records))
		for j := range numbers {
			numbers[j] = generator.Next()
		}
		all[d] = &sequence{numbers: numbers}
	}
	return all, nil
}

// newWorker makes worker i with a session on store, which its caller closes.
func newWorker(s *Spec, i int, store *kv.Store, memory []uint64) (*worker, error) {
	numbers, err := drawSequences(s, i)
	if err != nil {
		return nil, err
	}
	w := &worker{
		session:   store.NewSession(),
		valueSize: s.ValueSize,
		numbers:   numbers,
		coins:     *rand.NewPCG(uint64(i), 1),
		ops:       make([]kv.Op, s.Depth),
		free:      make([]*kv.Op, s.Depth),
		done:      make([]*kv.Op, s.Depth),
		key:       make([]byte, ycsb.KeySize),
		value:     make([]byte, s.ValueSize),
		yard:      yardstick{memory: memory, value: make([]uint64, (s.ValueSize+7)/8)},
	}
	modify, inPlace, word := addTo(0)
	w.rmw = kv.Op{Kind: kv.OpRMW, Key: w.key, Modify: modify, InPlace: inPlace}
	w.rmwWord = word
	buffers := make([]byte, s.Depth*(ycsb.KeySize+s.ValueSize))
	for i := range w.ops {
		key, rest := buffers[:ycsb.KeySize:ycsb.KeySize], buffers[ycsb.KeySize:]
		w.ops[i] = kv.Op{Key: key, Value: rest[:0:s.ValueSize], Modify: modify, InPlace: inPlace}
		if s.ValueSize == 8 {
			w.ops[i].ModifyWord = word
		}
		w.free[i] = &w.ops[i]
		buffers = rest[s.ValueSize:]
	}
	return w, nil
}

// addTo returns the three forms of a read-modify-write that adds n to the first word of a
// value. The cells add 0, unknown to the compiler, so that readers can check every value.
// It is not inlined: inlined copies of the functions would be compiled worse.
//
//go:noinline
func addTo(n uint64) (kv.Modifier, kv.InPlace, kv.WordModifier) {
	add := func(value []byte) {
		binary.LittleEndian.PutUint64(value, binary.LittleEndian.Uint64(value)+n)
	}
	copying := func(u *kv.Update) kv.Verdict {
		if !u.Found {
			return kv.Keep
		}
		if len(u.Old) == 8 {
			u.New = binary.LittleEndian.AppendUint64(u.New, binary.LittleEndian.Uint64(u.Old)+n)
			return kv.Put
		}
		u.New = append(u.New, u.Old...)
		add(u.New)
		return kv.Put
	}
	inPlace := func(value []byte) ([]byte, bool) {
		add(value)
		return value, true
	}
	word := func(old uint64, found bool) (uint64, kv.Verdict) {
		if !found {
			return 0, kv.Keep
		}
		return old + n, kv.Put
	}
	return copying, inPlace, word
}

// slice runs a cell for that long, or until ctx ends, and then until no operation is
// pending.
func (w *worker) slice(ctx context.Context, c *cell, lasts time.Duration) (t tally, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	numbers, k := w.numbers[c.distribution], c.op.kinds()
	rounds := max(min(clockEvery, clockEveryBytes/w.valueSize)/len(w.ops), 1)
	began, cpu := time.Now(), machine.ThreadCPU()
	for t.took < lasts && ctx.Err() == nil {
		for range rounds {
			if err := c.run(w, k, numbers.take(len(w.ops))); err != nil {
				return t, err
			}
			t.operations += len(w.ops)
		}
		t.took = time.Since(began)
	}
	for len(w.free) < len(w.ops) {
		if err := w.poll(); err != nil {
			return t, err
		}
	}
	t.took, t.cpu = time.Since(began), machine.ThreadCPU()-cpu
	return t, nil
}
