package resp

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// A list that is too large for one record is spread over nodes with consecutive numbers. A node's
// content is packed elements, as in list.go without their number. The header has the numbers of the
// first and the last node and the bytes of all contents, 8 bytes each.
//
// Elements are added and removed at the ends without a look at other nodes. A command that needs an
// element in between reads the nodes from the nearer end, nodesAtOnce in a batch. A node in between
// may become empty, and then has no record; one that becomes too large is divided, and the nodes
// behind it move up by a number, or by two or three.

// listNode is the size in bytes of a node's content, from which an element at an end goes to a new
// node. A node in between is divided if it has largeListNode, or does not fit the store.
const (
	listNode      = 4 << 10
	largeListNode = 4 * listNode
	nodesAtOnce   = 64
	mostListNodes = 1 << 32

	quickListHeader = 3 * 8
)

// quickList is a list that is spread over nodes. It is a list that forgets elements that it returned
// when it reads others.
type quickList struct {
	nodes
	key         []byte // of the record
	owned       bool   // the generation has its owner
	n           int
	first, last int64 // numbers of nodes; there is at least one
	weight      int64 // bytes of all contents
	changed     bool
}

// open begins the use of the list with this header in a key's record. It returns false if the header is
// malformed.
func (q *quickList) open(io *nodeIO, key []byte, h header) bool {
	q.begin(io, h.gen)
	q.key, q.owned, q.changed = key, true, false
	if len(h.rest) != quickListHeader || h.count == 0 || h.count > math.MaxInt64 {
		return false
	}
	q.n = int(h.count)
	q.first, q.last, q.weight = listNumbers(h)
	return q.first <= q.last && uint64(q.last-q.first) < mostListNodes && q.weight > 0
}

// listNumbers returns the numbers of the first and the last node, and the weight.
func listNumbers(h header) (first, last, weight int64) {
	return int64(binary.LittleEndian.Uint64(h.rest)), int64(binary.LittleEndian.Uint64(h.rest[8:])), int64(binary.LittleEndian.Uint64(h.rest[16:]))
}

// listNodes returns the nodes of a header.
func listNodes(h header) iter.Seq[nodeID] {
	return func(yield func(nodeID) bool) {
		first, last, _ := listNumbers(h)
		for id := first; id <= last && yield(nodeID(id)); id++ {
		}
	}
}

// create makes an empty list of a new generation, for a key's record.
func (q *quickList) create(io *nodeIO, key []byte) {
	q.begin(io, newGeneration())
	q.key, q.owned, q.changed = key, false, false
	q.n, q.first, q.last, q.weight = 0, 0, 0, 0
}

// own writes the generation's owner, before its first node.
func (q *quickList) own() {
	if !q.owned {
		q.io.own(q.gen, q.key)
		q.owned = true
	}
}

func (q *quickList) header() header {
	rest := binary.LittleEndian.AppendUint64(nil, uint64(q.first))
	rest = binary.LittleEndian.AppendUint64(rest, uint64(q.last))
	return header{gen: q.gen, count: uint64(q.n), rest: binary.LittleEndian.AppendUint64(rest, uint64(q.weight))}
}

func (q *quickList) count() int { return q.n }

func (q *quickList) fault() string { return q.io.err() }

func (q *quickList) push(front bool, element []byte) {
	id, step, size := q.last, int64(1), elementSize(element)
	if front {
		id, step = q.first, -1
	}
	nd := q.at(id)
	if len(nd.content) > 0 && len(nd.content)+size > listNode {
		id += step
		nd = q.fresh(nodeID(id))
		if front {
			q.first = id
		} else {
			q.last = id
		}
	}
	if q.io.failed != nil {
		return
	}
	if at := len(nd.content); front {
		nd.content = append(nd.content, make([]byte, size)...)
		copy(nd.content[size:], nd.content[:at])
		appendListElement(nd.content[:0], element)
	} else {
		nd.content = appendListElement(nd.content, element)
	}
	nd.changed, q.changed = true, true
	q.n++
	q.weight += int64(size)
}

// at returns a node. A list that was just created has none yet.
func (q *quickList) at(id int64) *node {
	if q.n == 0 {
		return q.fresh(nodeID(id))
	}
	return q.node(nodeID(id))
}

func (q *quickList) pop(front bool) (element []byte) {
	split, end, step := lastElement, &q.last, int64(-1)
	if front {
		split, end, step = firstElement, &q.first, 1
	}
	nd := q.node(nodeID(*end))
	for len(nd.content) == 0 && q.first < q.last && q.io.failed == nil {
		*end += step
		nd = q.node(nodeID(*end))
	}
	element, rest, ok := split(nd.content)
	if q.io.failed != nil || !ok {
		q.io.fail(errDamagedNode)
		return nil
	}
	nd.content, nd.changed, q.changed = rest, true, true
	q.n--
	q.weight -= int64(elementSize(element))
	if len(rest) == 0 && q.first < q.last {
		*end += step
	}
	return element
}

// visitNodes calls visit for the nodes from a number on, until it returns false, with the index of
// the node's first element, or in reverse of its last one; i is that of the first of these nodes. It
// forgets nodes that visit has not changed.
func (q *quickList) visitNodes(id int64, i int, reverse bool, visit func(nd *node, i int) bool) {
	step, left := int64(1), q.last-id
	if reverse {
		step, left = -1, id-q.first
	}
	for most := int64(1); left >= 0; most = min(2*most, nodesAtOnce) {
		several := min(left+1, most)
		left -= several
		for k := range several {
			q.want(nodeID(id + k*step))
		}
		q.io.fetch()
		for range several {
			nd := q.node(nodeID(id))
			n, ok := countElements(nd.content)
			if !ok {
				q.io.fail(errDamagedNode)
			}
			if q.io.failed != nil || !visit(nd, i) {
				return
			}
			q.release(nd.id)
			if id += step; reverse {
				i -= n
			} else {
				i += n
			}
		}
	}
}

// countElements returns the number of packed elements; ok is false if they are malformed.
func countElements(b []byte) (n int, ok bool) {
	for ; len(b) > 0; n++ {
		if _, b, ok = firstElement(b); !ok {
			return 0, false
		}
	}
	return n, true
}

// locate returns the number of the node that has the i-th element, and the index of the node's first
// one.
func (q *quickList) locate(i int) (id int64, first int) {
	found := false
	if i < q.n/2 {
		q.visitNodes(q.first, 0, false, func(nd *node, from int) bool {
			n, _ := countElements(nd.content)
			id, first, found = int64(nd.id), from, i < from+n
			return !found
		})
	} else {
		q.visitNodes(q.last, q.n-1, true, func(nd *node, to int) bool {
			n, _ := countElements(nd.content)
			id, first, found = int64(nd.id), to-n+1, i > to-n
			return !found
		})
	}
	if !found {
		q.io.fail(errDamagedNode)
	}
	return id, first
}

func (q *quickList) each(i int, reverse bool, visit func([]byte) bool) {
	id, first := q.locate(i)
	if q.io.failed != nil {
		return
	}
	next, at := firstElement, first
	if reverse {
		n, _ := countElements(q.node(nodeID(id)).content)
		next, at = lastElement, first+n-1
	}
	skip, stopped, left := max(i-at, at-i), false, i+1
	if !reverse {
		left = q.n - i
	}
	q.visitNodes(id, at, reverse, func(nd *node, _ int) bool {
		for rest := nd.content; len(rest) > 0; {
			var e []byte
			var ok bool
			if e, rest, ok = next(rest); !ok {
				q.io.fail(errDamagedNode)
				return false
			}
			if skip > 0 {
				skip--
				continue
			}
			left--
			if stopped = !visit(e); stopped {
				return false
			}
		}
		return true
	})
	if !stopped && left != 0 {
		q.io.fail(errDamagedNode)
	}
}

// edit replaces the elements of a node.
func (q *quickList) edit(nd *node, elements [][]byte) {
	content := make([]byte, 0, len(nd.content)+listNode/8)
	for _, e := range elements {
		content = appendListElement(content, e)
	}
	was, _ := countElements(nd.content)
	q.n += len(elements) - was
	q.weight += int64(len(content) - len(nd.content))
	nd.content, nd.changed, q.changed = content, true, true
}

// elementsOf returns the elements of a node.
func (q *quickList) elementsOf(nd *node) (elements [][]byte) {
	for rest := nd.content; len(rest) > 0; {
		e, behind, ok := firstElement(rest)
		if !ok {
			q.io.fail(errDamagedNode)
			return nil
		}
		elements, rest = append(elements, e), behind
	}
	return elements
}

func (q *quickList) set(i int, element []byte) {
	if q.refuses(element) {
		return
	}
	id, first := q.locate(i)
	nd := q.node(nodeID(id))
	if elements := q.elementsOf(nd); q.io.failed == nil {
		elements[i-first] = element
		q.edit(nd, elements)
		q.divide(id)
	}
}

func (q *quickList) insert(i int, element []byte) {
	if i == 0 || i == q.n {
		q.push(i == 0, element)
		return
	}
	if q.refuses(element) {
		return
	}
	id, first := q.locate(i)
	nd := q.node(nodeID(id))
	if elements := q.elementsOf(nd); q.io.failed == nil {
		q.edit(nd, slices.Insert(elements, i-first, element))
		q.divide(id)
	}
}

// refuses reports whether an element is too large for the store, before a list is read and moved for
// it.
func (q *quickList) refuses(element []byte) bool {
	if err := q.io.session.CheckSize(nodeKeySize, nodeHead+elementSize(element)); err != nil {
		q.io.fail(err)
	}
	return q.io.failed != nil
}

// divide divides a node that is too large. The nodes between it and the nearer end move, unless they
// are many.
func (q *quickList) divide(id int64) {
	nd := q.node(nodeID(id))
	elements := q.elementsOf(nd)
	if len(nd.content) < largeListNode && q.fits(len(nd.content)) || len(elements) < 2 || q.io.failed != nil {
		return
	}
	if min(id-q.first, q.last-id) > manyNodes {
		q.rebuild(0, 0, nil)
		return
	}
	parts, end, step := q.parts(elements), &q.last, int64(1)
	if id-q.first < q.last-id {
		end, step = &q.first, -1
		slices.Reverse(parts)
	}
	nd.content, nd.changed = parts[0], true
	moves := parts[1:]
	for id != *end && q.io.failed == nil {
		id += step
		nd = q.node(nodeID(id))
		moves = append(moves, slices.Clone(nd.content))
		nd.content, nd.changed = moves[0], true
		moves = moves[1:]
	}
	for _, content := range moves {
		*end += step
		nd = q.fresh(nodeID(*end))
		nd.content, nd.changed = content, true
	}
}

// parts returns elements of one node as the contents of two, or of more if long ones do not fit the
// store together.
func (q *quickList) parts(elements [][]byte) (parts [][]byte) {
	var part []byte
	for i, e := range elements {
		first := len(parts) == 0 && (len(part) >= largeListNode/2 || i == len(elements)-1)
		if i > 0 && (first || !q.fits(len(part)+elementSize(e))) {
			parts, part = append(parts, part), nil
		}
		part = appendListElement(part, e)
	}
	return append(parts, part)
}

// isSparse reports whether a short list has many nodes more than it needs.
func (q *quickList) isSparse() bool {
	const short = 1 << 20
	return q.weight < short && q.last-q.first > 4*(q.weight/listNode)+nodesAtOnce
}

func (q *quickList) cut(from, to int) {
	switch n := q.n; {
	case from >= to:
	case n-(to-from) < to-from || q.areMany(to-from):
		q.rebuild(from, to, nil)
	default:
		q.filter(from, to, func(i int) bool { return i < from || i >= to })
	}
}

// areMany reports whether n elements may lie in so many nodes that these are not changed in memory, all
// at once.
func (q *quickList) areMany(n int) bool { return min(int64(n), q.last-q.first) > manyNodes }

// rebuild makes the list one of a new generation. Of the elements from one index up to another, it
// keeps those that keep wants; nil: none. Nodes of the new generation are written when they are many. Those
// of before stay as they are: if the command fails after all, they are still the list.
func (q *quickList) rebuild(from, to int, keep func(i int) bool) {
	var next quickList
	next.create(q.io, q.key)
	copyAll := func(i, n int, keep func(i int) bool) {
		if n <= 0 {
			return
		}
		q.each(i, false, func(e []byte) bool {
			if keep == nil || keep(i) {
				next.push(false, e)
				next.writeSome()
			}
			i++
			n--
			return n > 0 && q.io.failed == nil
		})
	}
	copyAll(0, from, nil)
	if keep != nil {
		copyAll(from, to-from, keep)
	}
	copyAll(to, q.n-to, nil)
	q.releaseAll()
	*q = next
	q.changed = true
}

// writeSome writes the nodes of a generation that has no header yet, if they are many.
func (q *quickList) writeSome() {
	if len(q.all) <= manyNodes || q.io.failed != nil {
		return
	}
	if err := q.check(); err != nil {
		q.io.fail(err)
		return
	}
	q.own()
	q.store()
	_ = q.io.flush() // io keeps the error
	q.releaseAll()
}

func (q *quickList) remove(indexes []int) {
	if len(indexes) == 0 {
		return
	}
	from, to := indexes[0], indexes[len(indexes)-1]+1
	keep := func(i int) bool {
		_, found := slices.BinarySearch(indexes, i)
		return !found
	}
	if q.areMany(len(indexes)) {
		q.rebuild(from, to, keep)
	} else {
		q.filter(from, to, keep)
	}
}

// filter removes the elements from one index up to another that keep does not want.
func (q *quickList) filter(from, to int, keep func(i int) bool) {
	id, first := q.locate(from)
	if q.io.failed != nil {
		return
	}
	q.visitNodes(id, first, false, func(nd *node, i int) bool {
		all := q.elementsOf(nd)
		kept := make([][]byte, 0, len(all))
		for k, e := range all {
			if keep(i + k) {
				kept = append(kept, e)
			}
		}
		if len(kept) < len(all) {
			q.edit(nd, kept)
		}
		return i+len(all) < to
	})
}
