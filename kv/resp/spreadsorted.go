package resp

import (
	"encoding/binary"
	"math"
)

// spreadSorted is a sorted set that is spread over nodes: a hash table of its members with their
// scores, and a tree of its entries (scoretree.go). Both have nodes of one generation.
type spreadSorted struct {
	members hashTable
	tree    scoreTree
	key     []byte // of the record
	owned   bool   // the generation has its owner
	skips   bool   // the set was once too large for Redis's list encoding
	changed bool
}

// sortedHeader is the length of what the header of a set has: the hash table's, the root's number and
// the number of nodes that the tree ever made in 8 bytes each, and the byte of the packed type.
const sortedHeader = tableHeader + 2*8 + 1

// open begins the use of the set with this header in a key's record. It returns false if the header is
// malformed.
func (s *spreadSorted) open(io *nodeIO, key []byte, h header) bool {
	s.key, s.owned = key, true
	io.noteSorted(h.count)
	if len(h.rest) != sortedHeader || h.count > math.MaxInt64 {
		return false
	}
	table := header{gen: h.gen, count: h.count, rest: h.rest[:tableHeader]}
	if !s.members.open(io, typeHash, table) {
		return false
	}
	s.members.most = math.MaxInt64
	t := &s.tree
	t.begin(io, h.gen)
	t.root, t.n = nodeID(binary.LittleEndian.Uint64(h.rest[tableHeader:])), int(h.count)
	t.made = binary.LittleEndian.Uint64(h.rest[tableHeader+8:])
	s.changed, s.skips = false, typeOfByte[h.rest[sortedHeader-1]] == typeSkipSorted
	return t.root >= treeNumbers && t.root < treeNumbers+nodeID(t.made)
}

// create makes a set of a new generation, of the entries in their order, for a key's record. weight is that of
// the members.
func (s *spreadSorted) create(io *nodeIO, key []byte, entries []entry, weight uint64) {
	s.key, s.owned = key, false
	s.members.create(io, typeTableHash, weight)
	s.members.most = math.MaxInt64
	s.tree.begin(io, s.members.gen)
	s.tree.create()
	s.changed, s.skips = true, false
	for _, e := range entries {
		s.members.set(e.member, scoreBytes(e.score))
		s.tree.add(e)
		s.note(e.member)
	}
}

// own writes the generation's owner, before its first node.
func (s *spreadSorted) own() {
	if !s.owned {
		s.tree.io.own(s.tree.gen, s.key)
		s.owned = true
	}
}

// note notes a member that was added.
func (s *spreadSorted) note(member []byte) {
	s.skips = s.skips || len(member) > listMemberBytes || s.tree.n > listEntries
}

func scoreBytes(score float64) []byte {
	return binary.LittleEndian.AppendUint64(nil, math.Float64bits(score))
}

func (s *spreadSorted) header() header {
	h := s.members.header()
	h.rest = binary.LittleEndian.AppendUint64(h.rest, uint64(s.tree.root))
	h.rest = binary.LittleEndian.AppendUint64(h.rest, s.tree.made)
	t := typeSorted
	if s.skips {
		t = typeSkipSorted
	}
	h.rest = append(h.rest, typeBytes[t])
	s.tree.io.noteSorted(uint64(s.tree.n))
	return h
}

func (s *spreadSorted) count() int { return s.tree.n }

func (s *spreadSorted) fault() string { return s.tree.io.err() }

func (s *spreadSorted) score(member []byte) (score float64, ok bool) {
	value, ok := s.members.get(member)
	if !ok {
		return 0, false
	}
	if score = math.NaN(); len(value) == 8 {
		score = math.Float64frombits(binary.LittleEndian.Uint64(value))
	}
	if math.IsNaN(score) {
		s.tree.damaged()
	}
	return score, true
}

func (s *spreadSorted) put(member []byte, score float64) {
	if old, ok := s.score(member); ok {
		s.tree.remove(entry{old, member})
	}
	s.members.set(member, scoreBytes(score))
	s.tree.add(entry{score, member})
	s.note(member)
	s.changed = true
}

func (s *spreadSorted) remove(member []byte) bool {
	score, ok := s.score(member)
	if !ok {
		return false
	}
	s.members.remove(member)
	s.tree.remove(entry{score, member})
	s.changed = true
	return true
}

func (s *spreadSorted) before(b bound) int { return s.tree.before(b) }

func (s *spreadSorted) each(i int, reverse bool, visit func(float64, []byte) bool) {
	s.tree.each(i, reverse, visit)
}

func (s *spreadSorted) scan(cursor uint64, count int, visit func(float64, []byte)) (next uint64) {
	return s.members.scan(cursor, count, func(member, value []byte) {
		if len(value) == 8 {
			visit(math.Float64frombits(binary.LittleEndian.Uint64(value)), member)
		}
	})
}

// cutAtOnce is the number of entries that cut reads before it removes them.
const cutAtOnce = 1 << 10

func (s *spreadSorted) cut(from, to int) {
	if to > from && s.isMuch(to-from) {
		s.rebuild(from, to)
		return
	}
	for to > from && s.tree.io.failed == nil {
		n := min(to-from, cutAtOnce)
		entries := make([]entry, 0, n)
		s.tree.each(from, false, func(score float64, member []byte) bool {
			entries = append(entries, entry{score, append([]byte{}, member...)})
			return len(entries) < n
		})
		for _, e := range entries {
			s.members.prefetch(e.member)
		}
		s.tree.io.fetch()
		for _, e := range entries {
			if !s.members.remove(e.member) {
				s.tree.damaged()
			}
		}
		for len(entries) > 0 && s.tree.io.failed == nil {
			entries = entries[s.tree.removeRun(entries):]
		}
		s.changed = true
		to -= n
	}
}

// isMuch reports whether n entries are so many that the set is built anew without them. The nodes that change
// else are all in memory, until the command ends. To copy an entry takes about as long as to remove one.
func (s *spreadSorted) isMuch(n int) bool {
	io, nodes := s.tree.io, min(uint64(n), s.members.buckets)
	switch {
	case n == s.tree.n: // nothing is written
		return true
	case io.store.WriteError() != nil: // there is room only for nodes that become smaller
		return false
	}
	return n > s.tree.n/2 || nodes > manyNodes && n > s.tree.n/8 || nodes > 32*manyNodes && n > s.tree.n/64
}

// rebuild makes the set one of a new generation, without the entries from one index up to another. Nodes of
// the new generation are written when they are many. Those of before stay as they are: if the command fails
// after all, they are still the set.
func (s *spreadSorted) rebuild(from, to int) {
	var next spreadSorted
	n, kept := s.tree.n, s.tree.n-(to-from)
	weight := float64(s.members.weight) * float64(kept) / float64(n) // about, if kept members are as long as others
	next.create(s.tree.io, s.key, nil, uint64(weight))
	next.skips = s.skips
	if kept > 0 {
		next.copyEntries(s, from, to)
		next.copyMembers(s, from, to)
	}
	s.releaseAll()
	*s = next
}

// copyEntries builds the tree of another set's entries but those from one index up to another.
func (s *spreadSorted) copyEntries(of *spreadSorted, from, to int) {
	b := treeBuilder{t: &s.tree}
	b.begin()
	add := func(i, n int) {
		if n <= 0 {
			return
		}
		of.tree.each(i, false, func(score float64, member []byte) bool {
			b.add(entry{score, member})
			s.writeSome()
			n--
			return n > 0 && s.tree.io.failed == nil
		})
	}
	add(0, from)
	add(to, of.tree.n-to)
	b.finish()
}

// copyMembers adds another set's members but those of the entries from one index up to another. The hashes are
// those of the other table: members of one of its nodes come to few nodes here.
func (s *spreadSorted) copyMembers(of *spreadSorted, from, to int) {
	first, end := of.entryAt(from), of.entryAt(to)
	s.members.setSeed(of.members.seed)
	of.members.each(func(member, value []byte) bool {
		if len(value) != 8 {
			s.tree.damaged()
			return false
		}
		score := math.Float64frombits(binary.LittleEndian.Uint64(value))
		before := compareEntries(score, member, first.score, first.member) < 0
		if before || end.member != nil && compareEntries(score, member, end.score, end.member) >= 0 {
			s.members.insert(member, value)
			s.writeSome()
		}
		return s.tree.io.failed == nil
	})
	if int(s.members.count) != s.tree.n {
		s.tree.damaged()
	}
}

// entryAt returns a copy of the i-th entry. Its member is nil if there is none.
func (s *spreadSorted) entryAt(i int) (e entry) {
	if i < s.tree.n {
		s.tree.each(i, false, func(score float64, member []byte) bool {
			e = entry{score, append([]byte{}, member...)}
			return false
		})
	}
	return e
}

// writeSome writes the nodes of a generation that has no header yet, if they are many.
func (s *spreadSorted) writeSome() {
	io := s.tree.io
	if len(s.members.all)+len(s.tree.all) <= manyNodes || io.failed != nil {
		return
	}
	if err := s.check(); err != nil {
		io.fail(err)
		return
	}
	s.own()
	s.store()
	_ = io.flush() // io keeps the error
	s.releaseAll()
}

// check returns an error if a changed node is too large for the store.
func (s *spreadSorted) check() error {
	if err := s.members.check(); err != nil {
		return err
	}
	return s.tree.check()
}

func (s *spreadSorted) store() {
	s.members.store()
	s.tree.store()
}

func (s *spreadSorted) releaseAll() {
	s.members.releaseAll()
	s.tree.releaseAll()
}
