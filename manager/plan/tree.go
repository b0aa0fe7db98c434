package plan

import (
	"cmp"
	"math/bits"
)

// member is a server of a [Pool], and a node of the tree of its class: a treap, sorted by
// the price of a byte, then by age. Each node sums up its subtree, so that a search skips
// subtrees without a server that is large enough. Guarded by the pool's user.
type member struct {
	Server
	age     uint64
	started int64 // nanoseconds since 1970
	claims  int   // concurrent planners that are likely to choose it

	class           class
	up, left, right *member
	priority        uint64 // of the treap; the highest is the root
	sum             sum
}

// class is what all members of one tree have in common. Servers with memory and no cores
// and servers with cores and no memory are in different trees, so that a search for both
// rarely visits servers with one of them.
type class struct {
	transport string
	distance  int
	cores     int // bits of the number of free cores
}

func classOf(s Server) class { return class{s.Transport, s.Distance, bits.Len(uint(s.Cores))} }

// sum describes a number of members.
type sum struct {
	count     int
	free      uint64 // the most of one
	cores     int    // the most of one
	started   int64  // the first
	low, high Price  // of one
}

func (s sum) and(t sum) sum {
	switch {
	case s.count == 0:
		return t
	case t.count == 0:
		return s
	}
	return sum{
		s.count + t.count, max(s.free, t.free), max(s.cores, t.cores), min(s.started, t.started),
		min(s.low, t.low), max(s.high, t.high),
	}
}

// before reports whether m comes before o in a tree.
func (m *member) before(o *member) bool {
	return cmp.Or(comparePrices(m.Server, o.Server), cmp.Compare(m.age, o.age)) < 0
}

// comparePrices compares the prices of a byte.
func comparePrices(a, b Server) int {
	if a.Memory == 0 || b.Memory == 0 { // a server without memory costs nothing
		return cmp.Compare(min(a.Memory, uint64(a.Price)), min(b.Memory, uint64(b.Price)))
	}
	aHigh, aLow := bits.Mul64(uint64(a.Price), b.Memory)
	bHigh, bLow := bits.Mul64(uint64(b.Price), a.Memory)
	return cmp.Or(cmp.Compare(aHigh, bHigh), cmp.Compare(aLow, bLow))
}

// trees holds the root of each class that has members.
type trees map[class]*member

func (t trees) insert(m *member) {
	m.class, m.sum, m.up, m.left, m.right = classOf(m.Server), sum{}, nil, nil, nil
	at := t[m.class]
	for at != nil {
		m.up = at
		if m.before(at) {
			at = at.left
		} else {
			at = at.right
		}
	}
	switch {
	case m.up == nil:
		t[m.class] = m
	case m.before(m.up):
		m.up.left = m
	default:
		m.up.right = m
	}
	m.refresh()
	for m.up != nil && m.up.priority < m.priority {
		t.raise(m)
	}
}

func (t trees) remove(m *member) {
	for m.left != nil || m.right != nil {
		child := m.left
		if child == nil || m.right != nil && m.right.priority > child.priority {
			child = m.right
		}
		t.raise(child)
	}
	up := m.up
	t.replace(m, nil)
	if up == nil {
		delete(t, m.class)
		return
	}
	up.refresh()
}

// replace puts a subtree at the place of m.
func (t trees) replace(m, by *member) {
	switch {
	case m.up == nil:
		t[m.class] = by
	case m.up.left == m:
		m.up.left = by
	default:
		m.up.right = by
	}
	if by != nil {
		by.up = m.up
	}
}

// raise rotates m above its parent.
func (t trees) raise(m *member) {
	below := m.up
	t.replace(below, m)
	moved := m.left
	if below.left == m {
		moved, below.left, m.right = m.right, m.right, below
	} else {
		below.right, m.left = m.left, below
	}
	if moved != nil {
		moved.up = below
	}
	below.up = m
	below.sum = below.total()
	m.sum = m.total()
}

func (m *member) total() sum {
	s := m.alone()
	if m.left != nil {
		s = s.and(m.left.sum)
	}
	if m.right != nil {
		s = s.and(m.right.sum)
	}
	return s
}

func (m *member) alone() sum { return sum{1, m.Free, m.Cores, m.started, m.Price, m.Price} }

// refresh corrects the sums of m and of all nodes above it.
func (m *member) refresh() {
	for ; m != nil; m = m.up {
		now := m.total()
		if now == m.sum {
			return
		}
		m.sum = now
	}
}

// size is the least that a search is for.
type size struct {
	free  uint64
	cores int
}

func (z size) fits(free uint64, cores int) bool { return z.free <= free && z.cores <= cores }

// first returns the first member of a subtree that is large enough; nil: there is none.
func (m *member) first(z size) *member {
	for m != nil && z.fits(m.sum.free, m.sum.cores) {
		if f := m.left.first(z); f != nil {
			return f
		}
		if z.fits(m.Free, m.Cores) {
			return m
		}
		m = m.right
	}
	return nil
}

// next returns the first member of the tree after m that is large enough; nil: there is
// none.
func (m *member) next(z size) *member {
	if f := m.right.first(z); f != nil {
		return f
	}
	for ; m.up != nil; m = m.up {
		if m.up.left != m {
			continue
		}
		if z.fits(m.up.Free, m.up.Cores) {
			return m.up
		}
		if f := m.up.right.first(z); f != nil {
			return f
		}
	}
	return nil
}

// above sums up the members of a subtree that cost more per byte than s.
func (m *member) above(s Server) (all sum) {
	for m != nil {
		if comparePrices(m.Server, s) <= 0 {
			m = m.right
			continue
		}
		all = all.and(m.alone())
		if m.right != nil {
			all = all.and(m.right.sum)
		}
		m = m.left
	}
	return all
}
