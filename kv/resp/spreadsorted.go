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
	skips   bool // the set was once too large for Redis's list encoding
	changed bool
}

// sortedHeader is the length of what the header of a set has: the hash table's, the root's number and
// the number of nodes that the tree ever made in 8 bytes each, and the byte of the packed type.
const sortedHeader = tableHeader + 2*8 + 1

// treeNodes returns the number of nodes that the tree of a header ever made.
func treeNodes(h header) uint64 { return binary.LittleEndian.Uint64(h.rest[tableHeader+8:]) }

// open begins the use of a set with this header. It returns false if the header is malformed.
func (s *spreadSorted) open(io *nodeIO, h header) bool {
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
	t.root, t.made, t.n = nodeID(binary.LittleEndian.Uint64(h.rest[tableHeader:])), treeNodes(h), int(h.count)
	s.changed, s.skips = false, typeOfByte[h.rest[sortedHeader-1]] == typeSkipSorted
	return t.root >= treeNumbers && t.root < treeNumbers+nodeID(t.made)
}

// create makes a set of the entries, in their order.
func (s *spreadSorted) create(io *nodeIO, entries []entry, weight int) {
	s.members.create(io, typeTableHash, uint64(weight))
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

// cutAtOnce is the number of entries that cut removes before it writes what it has changed.
const cutAtOnce = 1 << 10

func (s *spreadSorted) cut(from, to int) {
	for to > from && s.tree.io.failed == nil {
		n := min(to-from, cutAtOnce)
		var members [][]byte
		s.tree.each(from, false, func(_ float64, member []byte) bool {
			members = append(members, append([]byte{}, member...))
			return len(members) < n
		})
		for _, member := range members {
			s.members.prefetch(member)
		}
		s.tree.io.fetch()
		for _, member := range members {
			if !s.remove(member) {
				s.tree.damaged()
			}
		}
		to -= n
	}
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
