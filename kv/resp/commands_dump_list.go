package resp

import (
	"encoding/binary"
	"math"

	"github.com/redykv/redykv/kv"
)

// The dumps of lists and sorted sets. DUMP writes the oldest form of a list, and sorted sets with
// scores in binary.

// dumpList appends the dump of a list.
func (c *client) dumpList(l list) {
	b := appendDumpLength([]byte{dumpList}, l.count())
	if l.count() > 0 {
		l.each(0, false, func(e []byte) bool {
			b = appendDumpString(b, e)
			return int64(len(b)) <= c.server.opts.MaxReplies
		})
	}
	switch {
	case l.fault() != "":
		c.error(l.fault())
	case int64(len(b)) > c.server.opts.MaxReplies:
		c.error(errMemory)
	default:
		c.finishDump(b)
	}
}

// dumpSorted appends the dump of a sorted set. Redis has the highest scores first.
func (c *client) dumpSorted(s sortedSet) {
	if s.fault() != "" {
		c.error(s.fault())
		return
	}
	b := appendDumpLength([]byte{dumpSorted}, s.count())
	s.each(s.count()-1, true, func(score float64, member []byte) bool {
		b = appendDumpString(b, member)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(score))
		return int64(len(b)) <= c.server.opts.MaxReplies
	})
	switch {
	case s.fault() != "":
		c.error(s.fault())
	case int64(len(b)) > c.server.opts.MaxReplies:
		c.error(errMemory)
	default:
		c.finishDump(b)
	}
}

// replaceValue sets the key to a value that undump returned, with an expiry, whatever it holds.
func (m *modification) replaceValue(value []byte, expires int64) kv.Verdict {
	t, content := typed(value)
	switch {
	case m.opened != nil:
		col := m.opened
		col.reset(t.family())
		if t == typeList {
			col.list.open(content)
		} else {
			col.sorted.open(t, content)
		}
		col.expires, col.changed = expires, true
		return kv.Put
	case t != typeString && len(content) > m.worker.packedMost:
		return m.deferTo()
	}
	m.u.New, m.u.Expires = append(m.u.New, value...), expires
	return kv.Put
}

// readList returns the record's value for a list in the form of a kind.
func (d *undumper) readList(kind byte) []byte {
	var l packedList
	add := func(e []byte) { l.push(false, e) }
	switch kind {
	case dumpZiplistList:
		d.pack(d.string(), true, add)
	default:
		n := d.plainLength()
		if n > uint64(len(d.b)) {
			d.failed = true
		}
		for ; n > 0 && !d.failed; n-- {
			d.readNode(kind, add)
		}
	}
	if l.n == 0 {
		d.failed = true
	}
	return l.appendTo(nil)
}

// readNode reads a part of a list.
func (d *undumper) readNode(kind byte, add func([]byte)) {
	const plain, packed = 1, 2 // containers of a quicklist's node
	switch kind {
	case dumpList:
		add(d.string())
	case dumpZiplists:
		d.pack(d.string(), true, add)
	default:
		switch d.plainLength() {
		case plain:
			add(d.string())
		case packed:
			d.pack(d.string(), false, add)
		default:
			d.failed = true
		}
	}
}

// pack reads the entries of a ziplist or a listpack.
func (d *undumper) pack(b []byte, zip bool, add func([]byte)) {
	l := undumper{b: b, failed: d.failed}
	if l.take(4 + 2); zip {
		l.take(4)
	}
	for !l.failed && len(l.b) > 0 && l.b[0] != 0xff {
		var e []byte
		if zip {
			e = l.zipEntry()
		} else {
			e = l.packEntry()
		}
		if !l.failed {
			add(e)
		}
	}
	l.take(1) // the end marker
	d.failed = d.failed || l.failed || len(l.b) > 0
}

// readSorted returns the record's value for a sorted set in the form of a kind.
func (d *undumper) readSorted(kind byte) []byte {
	var entries []entry
	add := func(score float64, ok bool, member []byte) {
		d.failed = d.failed || !ok || math.IsNaN(score)
		entries = append(entries, entry{score, member})
	}
	switch kind {
	case dumpZiplistSort, dumpListpackSort:
		var all [][]byte
		d.pack(d.string(), kind == dumpZiplistSort, func(e []byte) { all = append(all, e) })
		d.failed = d.failed || len(all)%2 != 0
		for i := 0; i < len(all) && !d.failed; i += 2 {
			score, ok := parseScore(all[i+1])
			add(score, ok, all[i])
		}
	default:
		n := d.plainLength()
		if n > uint64(len(d.b)) {
			d.failed = true
		}
		for ; n > 0 && !d.failed; n-- {
			member := d.string()
			if kind == dumpSorted {
				add(math.Float64frombits(littleUint(d.take(8))), true, member)
			} else {
				score, ok := d.decimal()
				add(score, ok, member)
			}
		}
	}
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		d.failed = d.failed || seen[string(e.member)]
		seen[string(e.member)] = true
	}
	if d.failed || len(entries) == 0 {
		d.failed = true
		return nil
	}
	var s packedSorted
	s.fill(entries)
	return s.appendTo(nil)
}

// decimal reads a score in decimal, after its length or a mark of what has no digits.
func (d *undumper) decimal() (score float64, ok bool) {
	const nan, plusInf, minusInf = 253, 254, 255
	switch n := d.number(1); n {
	case nan:
		return 0, false
	case plusInf:
		return math.Inf(1), true
	case minusInf:
		return math.Inf(-1), true
	default:
		return parseScore(d.take(n))
	}
}
