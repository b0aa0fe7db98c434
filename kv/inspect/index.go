package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// indexCheck compares a copy of the index with the records of the log.
type indexCheck struct {
	*manifest.IndexCopy
	table  *index.Table
	report Index
	begin  int64 // records below need not be in the copy, and entries that lead there are not checked
	// missing is the first record that should have an entry and has none; missed is their
	// number.
	missing, missed int64
}

// entryFound marks an entry of the table whose record was found. Addresses are multiples
// of 8, so that the bit is free.
const entryFound = 1

// indexUse is a copy of the index and the states that use it. It has all records of the log
// from the lowest begin of these states to its Start. Its entries lie below their lowest tail.
type indexUse struct {
	*manifest.IndexCopy
	begin, tail int64
}

// indexes loads the copies of the index.
func (in *inspector) indexes() {
	if !in.sameHash() {
		in.Notes = append(in.Notes, "the store uses another hash function: its copies of the index are not compared with the log")
	}
	uses := make(map[string]indexUse)
	m := in.manifest
	use := func(s *manifest.State) {
		if c := s.Index; c != nil {
			u := indexUse{c, s.Begin, s.Tail}
			if before, ok := uses[c.Object]; ok {
				u.begin, u.tail = min(u.begin, before.begin), min(u.tail, before.tail)
			}
			uses[c.Object] = u
		}
	}
	use(&m.Commit)
	for i := range m.Checkpoints {
		use(&m.Checkpoints[i].State)
	}
	if c := m.Index; c != nil {
		if _, used := uses[c.Object]; !used {
			// It is for later states; the device need not hold their log yet.
			uses[c.Object] = indexUse{c, cmp.Or(c.Begin, c.Start), hlog.MaxAddress}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		in.index(uses[name])
	}
}

// sameHash reports whether this program hashes keys as the store does.
func (in *inspector) sameHash() bool {
	return in.manifest.Hash == in.hash.Of([]byte(manifest.HashProbe))
}

func (in *inspector) index(c indexUse) {
	report := Index{Object: c.Object, Buckets: 1 << c.Bits, Start: c.Start}
	t, err := index.Load(in.src, c.IndexCopy, max(c.tail, c.Start), nil, nil)
	if err != nil {
		in.problem(fmt.Sprintf("index %q", c.Object),
			"nothing is lost: Open reads the log instead, which takes longer; the next checkpoint makes a new one", err)
		in.Indexes = append(in.Indexes, report)
		return
	}
	report.Overflow = int64(t.Overflow())
	t.EntriesFrom(1, func(int64) bool {
		report.Entries++
		return true
	})
	in.tables = append(in.tables, &indexCheck{IndexCopy: c.IndexCopy, table: t, report: report, begin: c.begin})
}

// record checks the entry of a record. Records come in the order of their addresses.
func (c *indexCheck) record(hash uint64, address int64) {
	p, e := c.table.Find(hash)
	switch at := e.Address() &^ entryFound; {
	case !p.None() && at == address:
		p.Store(e | entryFound)
		c.report.Checked++
	case address >= c.begin && address < c.Start && (p.None() || at < address):
		if c.missed == 0 {
			c.missing = address
		}
		c.missed++
	}
}

// indexesDone reports the entries without a record and the records without an entry. If
// the log is damaged, these say nothing.
func (in *inspector) indexesDone() {
	for _, c := range in.tables {
		where := fmt.Sprintf("index %q", c.Object)
		loose, first := int64(0), int64(0)
		c.table.EntriesFrom(c.begin, func(address int64) bool {
			if address&entryFound == 0 && address < in.Log.Tail {
				if loose == 0 {
					first = address
				}
				loose++
			}
			return true
		})
		const advice = "remove the object: Open then reads the log instead"
		if in.Log.Damaged == 0 && in.sameHash() {
			if loose > 0 {
				in.problem(where, advice, fmt.Errorf("%d entries lead to no record of their hash, the first to %d", loose, first))
			}
			if c.missed > 0 {
				in.problem(where, advice, fmt.Errorf("%d records have no entry, the first at %d", c.missed, c.missing))
			}
		}
		if err := c.table.Free(); err != nil {
			in.Notes = append(in.Notes, err.Error())
		}
		in.Indexes = append(in.Indexes, c.report)
	}
}
