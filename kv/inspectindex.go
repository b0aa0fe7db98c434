package kv

import (
	"fmt"
	"maps"
	"slices"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// indexCheck is a copy of the index whose entries are looked for in the log.
type indexCheck struct {
	*manifest.IndexCopy
	table  *table
	report *InspectedIndex
	begin  int64 // records below need not be in it, and entries that lead there are not looked at
	// Of records that should have an entry and have none, the first, and how many.
	missing, missed int64
}

// entryFound marks an entry, in this private table, of which the record was found:
// addresses are multiples of 8.
const entryFound = 1

// indexes loads the copies of the index.
func (in *inspector) indexes() {
	if in.manifest.Hash != in.hash.of([]byte(manifest.HashProbe)) {
		in.Notes = append(in.Notes, "the store has another hash: its copies of the index are not compared with the log")
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
			// It is for states to come, of which nothing need be on the device.
			begin := c.Begin
			if begin == 0 {
				begin = c.Start
			}
			uses[c.Object] = indexUse{c, begin, hlog.MaxAddress}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		in.index(uses[name])
	}
}

// indexUse is a copy of the index, and the lowest begin and tail of the states that it is
// used with: it has all records of the log from begin to its start, and none of its entries
// lies above tail.
type indexUse struct {
	*manifest.IndexCopy
	begin, tail int64
}

const indexAdvice = "nothing is lost: Open reads the log instead, which takes longer; the next checkpoint makes a new one"

func (in *inspector) index(c indexUse) {
	report := &InspectedIndex{Object: c.Object, Buckets: 1 << c.Bits, Start: c.Start}
	t, err := loadIndex(in.src, c.IndexCopy, max(c.tail, c.Start), nil)
	if err != nil {
		in.problem(fmt.Sprintf("index %q", c.Object), indexAdvice, err)
		in.Indexes = append(in.Indexes, *report)
		return
	}
	report.Overflow = int64(t.overflow.Load())
	t.entriesFrom(1, func(int64) bool {
		report.Entries++
		return true
	})
	in.tables = append(in.tables, &indexCheck{IndexCopy: c.IndexCopy, table: t, report: report, begin: c.begin})
}

// record takes one of the log's records, in their order.
func (c *indexCheck) record(hash uint64, address int64) {
	s, e := c.table.find(hash)
	switch at := e.address() &^ entryFound; {
	case s.p != nil && at == address:
		s.store(e | entryFound)
		c.report.Checked++
	case address >= c.begin && address < c.Start && (s.p == nil || at < address):
		if c.missed == 0 {
			c.missing = address
		}
		c.missed++
	}
}

// indexesDone looks at what the log's records have left over. Where the log is
// damaged nothing is to be learnt from that.
func (in *inspector) indexesDone() {
	for _, c := range in.tables {
		where := fmt.Sprintf("index %q", c.Object)
		loose, first := int64(0), int64(0)
		c.table.entriesFrom(c.begin, func(address int64) bool {
			if address&entryFound == 0 && address < in.Log.Tail {
				if loose == 0 {
					first = address
				}
				loose++
			}
			return true
		})
		const advice = "remove the object: Open then reads the log instead"
		if known := in.Log.Damaged == 0 && in.manifest.Hash == in.hash.of([]byte(manifest.HashProbe)); known {
			if loose > 0 {
				in.problem(where, advice, fmt.Errorf("%d entries lead to where no record of their hash is, the first to %d", loose, first))
			}
			if c.missed > 0 {
				in.problem(where, advice, fmt.Errorf("%d records have no entry, the first at %d", c.missed, c.missing))
			}
		}
		if err := c.table.free(); err != nil {
			in.Notes = append(in.Notes, err.Error())
		}
		in.Indexes = append(in.Indexes, *c.report)
	}
}
