package index

import (
	"fmt"
	"runtime"
)

// Double makes the table of twice the size that this one can be moved to.
func (t *Table) Double() (*Table, error) {
	if t.bits == int(t.tagShift)+TagBits {
		return nil, fmt.Errorf("the index has doubled %d times; open the store again to let it grow further", TagBits)
	}
	return New(t.bits+1, int(t.tagShift), t.onCrowded)
}

// MoveTo moves all entries to next, a table from Double, except those that lead below
// begin. Afterwards the owner replaces the table by next.
func (t *Table) MoveTo(next *Table, begin int64) {
	t.next.Store(next)
	m := mover{from: t, to: next, begin: begin}
	for b := range t.mask + 1 {
		m.move(b)
	}
}

// Next returns the table that this one is being moved to, or nil.
func (t *Table) Next() *Table { return t.next.Load() }

// mover moves the entries of a table to one of twice the size.
type mover struct {
	from, to *Table
	begin    int64   // of the log: entries that lead below are dropped
	entries  []Entry // of the bucket
}

// move moves the entries of bucket b.
func (m *mover) move(b uint64) {
	m.entries = m.entries[:0]
	for at := m.from.bucket(b); at != nil; at = m.from.behind(at) {
		for i := range BucketEntries {
			if e := take(placeIn(at, i)); e.Address() >= m.begin {
				m.entries = append(m.entries, e)
			}
		}
	}
	bit := Entry(1) << (AddressBits + uint(m.from.bits) - m.from.tagShift)
	m.fill(b, bit, 0)
	m.fill(b+m.from.mask+1, bit, bit)
	placeIn(m.from.bucket(b), 0).Store(moved)
}

// take replaces an entry by moving and returns it.
func take(p Place) Entry {
	for {
		e := p.Load()
		if e&Tentative != 0 {
			runtime.Gosched() // its inserter is about to decide
		} else if p.CompareAndSwap(e, moving) {
			return e
		}
	}
}

// fill stores the entries in which bit is want in a bucket of the new table, which no
// session uses yet. The two halves of a bucket take at most as many overflow buckets as
// the bucket had, and half of the new table's are reserved for them.
func (m *mover) fill(b uint64, bit, want Entry) {
	at := m.to.bucket(b)
	n := 0
	for _, e := range m.entries {
		if e&bit != want {
			continue
		}
		if n == BucketEntries {
			link, _ := m.to.takeOverflow(2 * m.to.limit)
			placeIn(at, BucketEntries).Store(link)
			at, n = m.to.bucket(uint64(link)), 0
		}
		placeIn(at, n).Store(e)
		n++
	}
}
