package ycsb

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
)

// Kind is what an operation of a mixed load does.
type Kind uint8

// The kinds of operations.
const (
	Read Kind = iota
	Update
	Insert
	ReadModifyWrite

	kinds
)

// String returns YCSB's name of the kind.
func (k Kind) String() string {
	return [kinds]string{"READ", "UPDATE", "INSERT", "READ_MODIFY_WRITE"}[k]
}

// Mix has the relative frequency of each kind of operation. Updates and inserts store a
// record's whole value, which is always the same, so that every read can be checked. Inserts
// add records in the order of their numbers.
type Mix [kinds]float64

// Counted has the counts of one kind of operation.
type Counted struct {
	Ops, Errors uint64
	// Latencies has the latency of every 31st operation, in nanoseconds. It is nil if there is
	// none.
	Latencies *hdrhistogram.Histogram
}

// Add adds the counts of another thread, whose Latencies may become the sum's.
func (c *Counted) Add(other Counted) {
	c.Ops += other.Ops
	c.Errors += other.Errors
	if c.Latencies == nil {
		c.Latencies = other.Latencies
	} else if other.Latencies != nil {
		c.Latencies.Merge(other.Latencies)
	}
}

// Counts has the counts of a mixed load.
type Counts struct {
	Kinds      [kinds]Counted
	FirstError error
}

// Add adds the counts of another thread.
func (c *Counts) Add(other Counts) {
	for kind := range c.Kinds {
		c.Kinds[kind].Add(other.Kinds[kind])
	}
	if c.FirstError == nil {
		c.FirstError = other.FirstError
	}
}

// tally returns the counts of all kinds together.
func (c *Counts) tally() tally {
	t := newTally()
	t.first = c.FirstError
	for kind, counted := range c.Kinds {
		t.count += counted.Ops
		t.errors += counted.Errors
		if Kind(kind) != Read {
			t.writes += counted.Ops
		}
		if counted.Latencies != nil {
			t.latencies.Merge(counted.Latencies)
		}
	}
	return t
}

// chooser draws the kinds of a mix's operations.
type chooser struct {
	rng   rand.PCG
	below [kinds]uint64 // a random number from below[k-1] up to below[k] selects kind k
}

func newChooser(mix Mix, seed int64) (chooser, error) {
	sum := 0.0
	for kind, share := range mix {
		if !(share >= 0 && share <= math.MaxFloat32) {
			return chooser{}, fmt.Errorf("a share of %g of %v operations", share, Kind(kind))
		}
		sum += share
	}
	if sum == 0 {
		return chooser{}, errors.New("a mix of no operations")
	}
	c := chooser{rng: *rand.NewPCG(uint64(seed), 2)}
	upTo := 0.0
	for kind, share := range mix {
		upTo += share
		c.below[kind] = uint64(upTo / sum * (1 << 32))
	}
	return c, nil
}

// next draws a kind.
func (c *chooser) next() Kind {
	kind, bits := Read, c.rng.Uint64()>>32
	for bits >= c.below[kind] && kind < kinds-1 {
		kind++
	}
	return kind
}

// mixed is the state of a reader with a mixed load. A slot is the number of one of its
// operations.
type mixed struct {
	chooser
	first  uint64        // the first record that operations ask for
	insert *atomic.Int64 // the record that the next insert adds
	size   int           // of values
	kinds  []Kind        // by slot: the kind of the operation
	torn   []bool        // by slot: whether a read-modify-write saw a wrong value
	drawn  uint32        // slot + 1 of the last drawn operation, until it has completed
	counts Counts
}

func newMixed(mix Mix, seed, first int64, insert *atomic.Int64, r *reader) (*mixed, error) {
	c, err := newChooser(mix, seed)
	if err != nil {
		return nil, err
	}
	m := &mixed{
		chooser: c, first: uint64(first), insert: insert, size: r.valueSize,
		kinds: make([]Kind, len(r.ops)), torn: make([]bool, len(r.ops)),
	}
	for i := range r.ops {
		op := &r.ops[i]
		op.InPlace = func(value []byte) ([]byte, bool) {
			m.modify(i, op, value)
			return value, true
		}
		op.Modify = func(u *kv.Update) kv.Verdict {
			if !u.Found {
				m.torn[i] = true
				return kv.Keep
			}
			u.New = append(u.New, u.Old...)
			m.modify(i, op, u.New)
			return kv.Put
		}
	}
	return m, nil
}

// modify is a read-modify-write: it checks the record's value and stores it again.
func (m *mixed) modify(slot int, op *kv.Op, value []byte) {
	n := record.KeyNumber(op.Key)
	if m.torn[slot] = !record.EndsMatch(value, n, m.size); !m.torn[slot] {
		record.FillValue(value, n)
	}
}

// draw draws the next operation into a slot. It keeps a drawn operation that found no room.
func (m *mixed) draw(slot uint32, op *kv.Op, numbers *Generator) {
	if m.drawn == slot+1 {
		return
	}
	m.drawn = slot + 1
	kind := m.next()
	m.kinds[slot] = kind
	n := m.first
	if kind == Insert {
		n = uint64(m.insert.Add(1) - 1)
	} else {
		n += uint64(numbers.Next())
	}
	record.PutKey(op.Key, n)
	switch kind {
	case Read:
		op.Kind, op.Value = kv.OpRead, op.Value[:0]
	case ReadModifyWrite:
		op.Kind, m.torn[slot] = kv.OpRMW, false
	default:
		op.Kind, op.Value = kv.OpUpsert, op.Value[:m.size]
		record.FillValue(op.Value, n)
	}
}

// finish counts the operation in a slot. took is its latency in nanoseconds; 0: not measured.
func (m *mixed) finish(slot uint32, op *kv.Op, took int64) {
	if m.drawn == slot+1 {
		m.drawn = 0
	}
	kind := m.kinds[slot]
	c := &m.counts.Kinds[kind]
	c.Ops++
	n := record.KeyNumber(op.Key)
	err := op.Err
	switch {
	case err != nil:
	case kind == Read && !record.EndsMatch(op.Value, n, m.size), kind == Read && took > 0:
		err = record.CheckValue(op.Value, n, m.size)
	case m.torn[slot]:
		err = errors.New("the record is missing or has a wrong value")
	}
	if err != nil {
		c.Errors++
		if m.counts.FirstError == nil {
			m.counts.FirstError = fmt.Errorf("%v of record %d: %w", kind, n, err)
		}
	}
	if took > 0 {
		if c.Latencies == nil {
			c.Latencies = NewLatencies()
		}
		// RecordValue fails only for values out of range.
		_ = c.Latencies.RecordValue(min(took, maxLatency))
	}
}
