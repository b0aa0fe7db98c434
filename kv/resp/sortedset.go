package resp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// sortedSet is a sorted set while a command reads or changes it. Members that it returns or is
// given belong to others: they are valid until the command ends.
type sortedSet interface {
	container
	// score returns the score of a member.
	score(member []byte) (score float64, ok bool)
	// put sets the score of a member, which need not exist.
	put(member []byte, score float64)
	// remove removes a member, and reports whether it existed.
	remove(member []byte) bool
	// before returns the number of entries before a bound.
	before(b bound) int
	// each calls visit for the entries from the i-th on, forward or in reverse, until it returns
	// false. The set must have an i-th entry, and visit must not change the set or keep members.
	each(i int, reverse bool, visit func(score float64, member []byte) bool)
	// cut removes the entries from one index up to another.
	cut(from, to int)
	// scan calls visit for the entries of a step of ZSCAN, count or more of them if there are so many,
	// and returns the cursor of the next step, 0 at the end.
	scan(cursor uint64, count int, visit func(score float64, member []byte)) (next uint64)
}

// bound is a position between the entries of a sorted set.
type bound struct {
	kind     boundKind
	score    float64
	member   []byte
	infinite int  // of a bound by member: -1 before all members, 1 behind them
	after    bool // behind the entries that are equal to the bound, else before them
}

type boundKind uint8

const (
	boundScore  boundKind = iota
	boundMember           // all entries have the same score
	boundEntry            // by score, then member
)

// follows reports whether the bound is behind an entry.
func (b *bound) follows(score float64, member []byte) bool {
	var order int
	switch b.kind {
	case boundScore:
		order = cmp.Compare(score, b.score)
	case boundMember:
		if b.infinite != 0 {
			return b.infinite > 0
		}
		order = bytes.Compare(member, b.member)
	case boundEntry:
		order = compareEntries(score, member, b.score, b.member)
	}
	return order < 0 || order == 0 && b.after
}

// compareEntries compares by score, then by member.
func compareEntries(score float64, member []byte, score2 float64, member2 []byte) int {
	switch {
	case score < score2:
		return -1
	case score > score2:
		return 1
	}
	return bytes.Compare(member, member2)
}

// rankOf returns the number of entries before a member.
func rankOf(s sortedSet, member []byte) (rank int, score float64, ok bool) {
	if score, ok = s.score(member); !ok {
		return 0, 0, false
	}
	return s.before(bound{kind: boundEntry, score: score, member: member}), score, true
}

// The content of a sorted set is the number of its entries, then for each entry in their order its
// score in 8 bytes, the length of its member, the member. Numbers are varints.

// entry is a member of a sorted set and its score.
type entry struct {
	score  float64
	member []byte
}

// packedSorted is a sorted set in one record.
type packedSorted struct {
	entries []entry
	large   bool // the set was once too large for Redis's list encoding
	changed bool
	damaged bool
}

// open reads the content of a sorted set of a type, which is typeNone if there is none.
func (s *packedSorted) open(t valueType, content []byte) {
	s.entries, s.large, s.changed, s.damaged = s.entries[:0], t == typeSkipSorted, false, false
	if t == typeNone {
		return
	}
	n, size := binary.Uvarint(content)
	const least = 8 + 1 // bytes of an entry
	if size <= 0 || n == 0 || n > uint64(len(content)-size)/least {
		s.damaged = true
		return
	}
	rest := content[size:]
	s.entries = slices.Grow(s.entries, int(n))
	for range n {
		e, behind, ok := cutEntry(rest)
		last := len(s.entries) - 1
		if !ok || last >= 0 && compareEntries(s.entries[last].score, s.entries[last].member, e.score, e.member) >= 0 {
			s.damaged = true
			return
		}
		s.entries, rest = append(s.entries, e), behind
	}
	s.damaged = len(rest) > 0
}

// Limits of Redis's list encoding of sorted sets.
const (
	listEntries     = 128
	listMemberBytes = 64
)

// appendTo appends the record's value.
func (s *packedSorted) appendTo(dst []byte) []byte {
	large := s.large || len(s.entries) > listEntries
	for i := range s.entries {
		large = large || len(s.entries[i].member) > listMemberBytes
	}
	t := typeSorted
	if large {
		t = typeSkipSorted
	}
	dst = binary.AppendUvarint(appendMark(dst, t), uint64(len(s.entries)))
	for _, e := range s.entries {
		dst = appendEntry(dst, e)
	}
	return dst
}

// size returns the length of the content.
func (s *packedSorted) size() int {
	n := binary.MaxVarintLen64
	for i := range s.entries {
		n += entrySize(s.entries[i])
	}
	return n
}

// forget drops references to memory of others, and large buffers.
func (s *packedSorted) forget() {
	clear(s.entries)
	if s.entries = s.entries[:0]; cap(s.entries) > keptElements {
		s.entries = nil
	}
}

func (s *packedSorted) count() int {
	if s.damaged {
		return 0
	}
	return len(s.entries)
}

func (s *packedSorted) fault() string {
	if s.damaged {
		return errDamagedSorted
	}
	return ""
}

// find returns the index of a member, or -1.
func (s *packedSorted) find(member []byte) int {
	if s.damaged {
		return -1
	}
	for i := range s.entries {
		if bytes.Equal(s.entries[i].member, member) {
			return i
		}
	}
	return -1
}

func (s *packedSorted) score(member []byte) (score float64, ok bool) {
	if i := s.find(member); i >= 0 {
		return s.entries[i].score, true
	}
	return 0, false
}

func (s *packedSorted) put(member []byte, score float64) {
	if s.damaged {
		return
	}
	s.remove(member)
	at := s.before(bound{kind: boundEntry, score: score, member: member})
	s.entries = slices.Insert(s.entries, at, entry{score, member})
	s.changed = true
}

func (s *packedSorted) remove(member []byte) bool {
	i := s.find(member)
	if i < 0 {
		return false
	}
	s.entries = slices.Delete(s.entries, i, i+1)
	s.changed = true
	return true
}

func (s *packedSorted) before(b bound) int {
	low, high := 0, s.count()
	for low < high {
		mid := int(uint(low+high) / 2)
		if b.follows(s.entries[mid].score, s.entries[mid].member) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

func (s *packedSorted) each(i int, reverse bool, visit func(float64, []byte) bool) {
	step := 1
	if reverse {
		step = -1
	}
	for ; i >= 0 && i < s.count() && visit(s.entries[i].score, s.entries[i].member); i += step {
	}
}

func (s *packedSorted) cut(from, to int) {
	if from < to && !s.damaged {
		s.entries = slices.Delete(s.entries, from, to)
		s.changed = true
	}
}

// fill sets the entries of a new set, which are in any order.
func (s *packedSorted) fill(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int { return compareEntries(a.score, a.member, b.score, b.member) })
	s.entries, s.large, s.changed, s.damaged = entries, false, true, false
}

// scan visits all entries.
func (s *packedSorted) scan(_ uint64, _ int, visit func(float64, []byte)) (next uint64) {
	s.each(0, false, func(score float64, member []byte) bool {
		visit(score, member)
		return true
	})
	return 0
}
