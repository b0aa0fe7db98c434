package resp

import (
	"encoding/binary"
	"math"
	"slices"
)

// scoreTree is a B+tree of the entries of a large sorted set, in their order. Each inner node has the
// number of entries below each of its children, so that an entry is found by its rank as well as by a
// bound. The content of a node is a byte for its kind, then
//
//	of a leaf     for each entry its score in 8 bytes, the length of its member, the member
//	of others     for each child its number and its count in 8 bytes each, and the least that is like an
//	              entry and separates the child from the one before: none of the child's entries is
//	              before it, and all of the other's are; the first child has none
//
// A node that exceeds treeNode is divided, one that is no leaf if each part gets two children: long
// members must not make the tree as high as it has nodes. A node without entries is removed; others are
// not merged.
type scoreTree struct {
	nodes
	root nodeID
	made uint64 // number of nodes that were ever made; their numbers are treeNumbers and up
	n    int
}

const (
	treeNode    = 4 << 10
	treeNumbers = nodeID(1) << 63 // numbers below are those of the hash table of members

	leafKind  = 'l'
	innerKind = 'i'
)

// child is a child of an inner node.
type child struct {
	id    nodeID
	count uint64
	low   entry
}

// treeStep is a node on the way from the root to a leaf, and the child that the way takes.
type treeStep struct {
	nd       *node
	children []child
	at       int
}

// create makes an empty tree, of a single leaf.
func (t *scoreTree) create() {
	t.root, t.made, t.n = treeNumbers, 1, 0
	t.fresh(t.root)
}

func (t *scoreTree) another() *node {
	nd := t.fresh(treeNumbers + nodeID(t.made))
	t.made++
	return nd
}

func (t *scoreTree) damaged() { t.io.fail(errDamagedNode) }

// read reads a node. Of a leaf, children is nil.
func (t *scoreTree) read(id nodeID) (nd *node, entries []entry, children []child) {
	if nd = t.node(id); t.io.failed != nil || t.n == 0 {
		return nd, nil, nil
	}
	if len(nd.content) < 2 {
		t.damaged()
		return nd, nil, nil
	}
	rest, ok := nd.content[1:], true
	switch nd.content[0] {
	case leafKind:
		for ok && len(rest) > 0 {
			var e entry
			e, rest, ok = cutEntry(rest)
			entries = append(entries, e)
		}
	case innerKind:
		for ok && len(rest) > 0 {
			if ok = len(rest) > 16; !ok {
				break
			}
			c := child{id: nodeID(binary.LittleEndian.Uint64(rest)), count: binary.LittleEndian.Uint64(rest[8:])}
			c.low, rest, ok = cutEntry(rest[16:])
			children = append(children, c)
			ok = ok && c.id >= treeNumbers && c.id < treeNumbers+nodeID(t.made) && c.count > 0 && c.count <= uint64(t.n)
		}
	default:
		ok = false
	}
	if !ok {
		t.damaged()
		return nd, nil, nil
	}
	return nd, entries, children
}

// cutEntry splits packed entries behind the first one.
func cutEntry(b []byte) (e entry, rest []byte, ok bool) {
	if len(b) < 8 {
		return e, nil, false
	}
	e.score = math.Float64frombits(binary.LittleEndian.Uint64(b))
	size, n := binary.Uvarint(b[8:])
	if n <= 0 || size > uint64(len(b)-8-n) || math.IsNaN(e.score) {
		return e, nil, false
	}
	end := 8 + n + int(size)
	e.member = b[8+n : end : end]
	return e, b[end:], true
}

func appendEntry(dst []byte, e entry) []byte {
	return appendPart(binary.LittleEndian.AppendUint64(dst, math.Float64bits(e.score)), e.member)
}

// entrySize returns the number of bytes that appendEntry appends.
func entrySize(e entry) int { return 8 + partSize(e.member) }

func writeLeaf(nd *node, entries []entry) {
	content := make([]byte, 0, treeNode+treeNode/8)
	content = append(content, leafKind)
	for _, e := range entries {
		content = appendEntry(content, e)
	}
	nd.content, nd.changed = content, true
}

func writeInner(nd *node, children []child) {
	content := make([]byte, 0, treeNode+treeNode/8)
	content = append(content, innerKind)
	for i, c := range children {
		if i == 0 {
			c.low = entry{score: math.Inf(-1)} // also entries before it go to the first child
		}
		content = binary.LittleEndian.AppendUint64(content, uint64(c.id))
		content = binary.LittleEndian.AppendUint64(content, c.count)
		content = appendEntry(content, c.low)
	}
	nd.content, nd.changed = content, true
}

// down returns the way to the leaf where an entry is or belongs, and the leaf's entries.
func (t *scoreTree) down(e entry) (way []treeStep, leaf *node, entries []entry) {
	id := t.root
	for t.io.failed == nil && len(way) < maxTreeHeight {
		nd, entries, children := t.read(id)
		if children == nil {
			return way, nd, entries
		}
		at, _ := slices.BinarySearchFunc(children, e, func(c child, e entry) int {
			if compareEntries(c.low.score, c.low.member, e.score, e.member) <= 0 {
				return -1
			}
			return 1
		})
		at = max(at-1, 0)
		way = append(way, treeStep{nd, children, at})
		id = children[at].id
	}
	t.damaged()
	return nil, nil, nil
}

// maxTreeHeight is more than the height of any tree of nodes with at least two children.
const maxTreeHeight = 64

func searchEntries(entries []entry, e entry) (at int, found bool) {
	return slices.BinarySearchFunc(entries, e, func(a, b entry) int {
		return compareEntries(a.score, a.member, b.score, b.member)
	})
}

// add adds an entry that the tree does not have.
func (t *scoreTree) add(e entry) {
	way, leaf, entries := t.down(e)
	if t.io.failed != nil {
		return
	}
	at, found := searchEntries(entries, e)
	if found {
		t.damaged()
		return
	}
	entries = slices.Insert(entries, at, e)
	t.n++
	half := half(len(entries), 1, at, func(i int) int { return entrySize(entries[i]) })
	if half == len(entries) {
		writeLeaf(leaf, entries)
		t.counted(way, 1, child{})
		return
	}
	right := t.another()
	writeLeaf(right, entries[half:])
	low := separator(entries[half-1], entries[half])
	writeLeaf(leaf, entries[:half])
	t.counted(way, 1, child{right.id, uint64(len(entries) - half), low})
}

// separator returns what is not before an entry, and behind the one before that.
func separator(before, e entry) entry {
	if before.score < e.score {
		return entry{score: e.score}
	}
	n := 0
	for n < len(before.member) && before.member[n] == e.member[n] { // it is before e.member
		n++
	}
	return entry{e.score, slices.Clone(e.member[:n+1])}
}

// half returns where a node of n items is divided, each part with some at least, or n if it is not. A node
// whose last item is new keeps as many of the others as it can: items are often added in order.
func half(n, least, added int, size func(i int) int) int {
	total := 0
	for i := range n {
		total += size(i)
	}
	if total <= treeNode || n < 2*least {
		return n
	}
	if added == n-1 {
		return n - least
	}
	sum := 0
	for i := range n {
		if sum += size(i); sum >= total/2 {
			return max(least, min(i, n-least))
		}
	}
	return n - least
}

// counted adds delta to the counts on the way, and a child behind the last step's, if it has one.
func (t *scoreTree) counted(way []treeStep, delta int, added child) {
	for _, step := range slices.Backward(way) {
		c := step.children
		c[step.at].count = uint64(int64(c[step.at].count) + int64(delta))
		if added.count == 0 {
			writeInner(step.nd, c)
			continue
		}
		c[step.at].count -= added.count
		c = slices.Insert(c, step.at+1, added)
		half := half(len(c), 2, step.at+1, func(i int) int { return 16 + entrySize(c[i].low) })
		if added = (child{}); half < len(c) {
			right := t.another()
			writeInner(right, c[half:])
			added = child{id: right.id, low: entry{c[half].low.score, slices.Clone(c[half].low.member)}}
			for _, of := range c[half:] {
				added.count += of.count
			}
		}
		writeInner(step.nd, c[:half])
	}
	if added.count > 0 {
		top := t.another()
		writeInner(top, []child{{t.root, uint64(t.n) - added.count, added.low}, added})
		t.root = top.id
	}
}

// remove removes an entry that the tree has.
func (t *scoreTree) remove(e entry) { t.removeRun([]entry{e}) }

// removeRun removes, of entries that the tree has one behind the other, those in the leaf of the first one. It
// returns their number.
func (t *scoreTree) removeRun(run []entry) (n int) {
	way, leaf, entries := t.down(run[0])
	if t.io.failed != nil {
		return 0
	}
	at, found := searchEntries(entries, run[0])
	if !found {
		t.damaged()
		return 0
	}
	n = min(len(run), len(entries)-at)
	t.n -= n
	if entries = slices.Delete(entries, at, at+n); len(entries) > 0 || len(way) == 0 {
		writeLeaf(leaf, entries)
		t.counted(way, -n, child{})
	} else {
		leaf.content, leaf.changed = nil, true
		t.dropped(way, n)
	}
	for t.n > 0 {
		nd, _, children := t.read(t.root)
		if len(children) != 1 {
			break
		}
		t.root = children[0].id
		nd.content, nd.changed = nil, true
	}
	return n
}

// dropped removes the child that the way takes, which has become empty without n entries.
func (t *scoreTree) dropped(way []treeStep, n int) {
	for len(way) > 0 {
		last := len(way) - 1
		step := way[last]
		way = way[:last]
		if c := slices.Delete(step.children, step.at, step.at+1); len(c) > 0 {
			writeInner(step.nd, c)
			break
		}
		step.nd.content, step.nd.changed = nil, true
	}
	t.counted(way, -n, child{})
}

// before returns the number of entries before a bound.
func (t *scoreTree) before(b bound) (n int) {
	id := t.root
	for range maxTreeHeight {
		_, entries, children := t.read(id)
		if t.io.failed != nil {
			return 0
		}
		if children == nil {
			i := 0
			for i < len(entries) && b.follows(entries[i].score, entries[i].member) {
				i++
			}
			return n + i
		}
		at := 0
		for at+1 < len(children) && b.follows(children[at+1].low.score, children[at+1].low.member) {
			n += int(children[at].count)
			at++
		}
		id = children[at].id
	}
	t.damaged()
	return 0
}

// each visits the entries from the i-th on, forward or in reverse, until visit returns false. It forgets the
// nodes without changes that it has passed, and those of earlier visits if there are many.
func (t *scoreTree) each(i int, reverse bool, visit func(score float64, member []byte) bool) {
	if len(t.all) > manyNodes {
		t.releaseUnchanged()
	}
	if reverse {
		i = t.n - 1 - i // the number of entries to pass
	}
	t.walk(t.root, 0, i, reverse, visit)
}

// walk is each below a node; it passes skip entries first. It reports whether to go on.
func (t *scoreTree) walk(id nodeID, depth, skip int, reverse bool, visit func(float64, []byte) bool) bool {
	if depth == maxTreeHeight {
		t.damaged()
	}
	_, entries, children := t.read(id)
	if t.io.failed != nil {
		return false
	}
	if reverse {
		slices.Reverse(entries)
		slices.Reverse(children)
	}
	if children == nil {
		for _, e := range entries[min(skip, len(entries)):] {
			if !visit(e.score, e.member) {
				return false
			}
		}
		return true
	}
	ahead := 1
	for k, c := range children {
		if skip >= int(c.count) {
			skip -= int(c.count)
			continue
		}
		if t.all[c.id] == nil {
			for _, of := range children[k:min(k+ahead, len(children))] {
				t.want(of.id)
			}
			t.io.fetch()
			ahead = min(2*ahead, nodesAtOnce)
		}
		if !t.walk(c.id, depth+1, skip, reverse, visit) {
			return false // the next visit may begin near here
		}
		t.release(c.id)
		skip = 0
	}
	return true
}
