package resp

import (
	"encoding/binary"
	"slices"
)

// list is a list while a command reads or changes it. Elements that it returns or is given
// belong to others: they are valid until the command ends.
type list interface {
	container
	// push adds an element at the front or back.
	push(front bool, element []byte)
	// pop removes the element at the front or back. The list must not be empty.
	pop(front bool) []byte
	// each calls visit for the elements from the i-th on, forward or in reverse, until it returns
	// false. The list must have an i-th element, and visit must not change the list.
	each(i int, reverse bool, visit func(element []byte) bool)
	// set replaces the i-th element.
	set(i int, element []byte)
	// insert makes an element the i-th.
	insert(i int, element []byte)
	// cut removes the elements from one index up to another.
	cut(from, to int)
	// remove removes the elements of these indexes, which are in ascending order.
	remove(indexes []int)
}

// elementAt returns the i-th element, which must exist.
func elementAt(l list, i int) (element []byte) {
	l.each(i, false, func(e []byte) bool {
		element = e
		return false
	})
	return element
}

// The content of a list is the number of its elements, then for each element its length, the
// element, and the length again with its bytes reversed, so that the list is read from both
// ends. Lengths are varints.

// packedList is a list in one record. While it is opened, its elements are front in reverse, then
// those of body, then back; if a command needs more than the ends, all are in back.
type packedList struct {
	n           int
	body        []byte
	front, back [][]byte
	changed     bool
	damaged     bool
}

// open reads the content of a list, which is empty if there is no list.
func (l *packedList) open(content []byte) {
	l.front, l.back = l.front[:0], l.back[:0]
	l.n, l.body, l.changed, l.damaged = 0, nil, false, false
	if len(content) == 0 {
		return
	}
	n, size := binary.Uvarint(content)
	if size <= 0 || n == 0 || n > uint64(len(content)-size)/2 { // an element takes two bytes at least
		l.damaged = true
		return
	}
	l.n, l.body = int(n), content[size:]
}

// appendTo appends the record's value.
func (l *packedList) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(appendMark(dst, typeList), uint64(l.n))
	for _, e := range slices.Backward(l.front) {
		dst = appendListElement(dst, e)
	}
	dst = append(dst, l.body...)
	for _, e := range l.back {
		dst = appendListElement(dst, e)
	}
	return dst
}

// size returns the length of the content.
func (l *packedList) size() int {
	n := binary.MaxVarintLen64 + len(l.body)
	for _, all := range [][][]byte{l.front, l.back} {
		for _, e := range all {
			n += elementSize(e)
		}
	}
	return n
}

// elementSize returns the number of bytes that appendListElement appends.
func elementSize(e []byte) int { return 2*partSize(e) - len(e) }

func appendListElement(dst, e []byte) []byte {
	dst = appendPart(dst, e)
	at := len(dst)
	dst = binary.AppendUvarint(dst, uint64(len(e)))
	slices.Reverse(dst[at:])
	return dst
}

// forget drops references to memory of others, and large buffers.
func (l *packedList) forget() {
	clear(l.front)
	clear(l.back)
	l.front, l.back, l.body = l.front[:0], l.back[:0], nil
	if cap(l.front)+cap(l.back) > keptElements {
		l.front, l.back = nil, nil
	}
}

// keptElements is the most elements for which an unused collection keeps room.
const keptElements = 1 << 7

func (l *packedList) count() int {
	if l.damaged {
		return 0
	}
	return l.n
}

func (l *packedList) fault() string {
	if l.damaged {
		return errDamagedList
	}
	return ""
}

func (l *packedList) push(front bool, element []byte) {
	if front {
		l.front = append(l.front, element)
	} else {
		l.back = append(l.back, element)
	}
	l.n++
	l.changed = true
}

func (l *packedList) pop(front bool) (element []byte) {
	near, far := &l.front, &l.back
	if !front {
		near, far = far, near
	}
	switch n := len(*near); {
	case n > 0:
		element = (*near)[n-1]
		*near = (*near)[:n-1]
	case len(l.body) > 0:
		element = l.popBody(front)
	case len(*far) > 0:
		element = (*far)[0]
		*far = (*far)[1:]
	default:
		l.damaged = true
		return nil
	}
	l.n--
	l.changed = true
	return element
}

// popBody removes an element from the body, which is not empty.
func (l *packedList) popBody(front bool) (element []byte) {
	var ok bool
	if front {
		element, l.body, ok = firstElement(l.body)
	} else {
		element, l.body, ok = lastElement(l.body)
	}
	l.damaged = l.damaged || !ok
	return element
}

// firstElement splits packed elements behind the first one.
func firstElement(b []byte) (element, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	element, rest = b[n:end:end], b[end:]
	if back, m := uvarintBefore(rest[:min(n, len(rest))]); m != n || back != size {
		return nil, nil, false
	}
	return element, rest[n:], true
}

// lastElement splits packed elements before the last one.
func lastElement(b []byte) (element, rest []byte, ok bool) {
	size, n := uvarintBefore(b)
	if n <= 0 || size > uint64(len(b)) || 2*n+int(size) > len(b) {
		return nil, nil, false
	}
	start := len(b) - n - int(size)
	if before, m := binary.Uvarint(b[start-n : start]); m != n || before != size {
		return nil, nil, false
	}
	return b[start : start+int(size) : start+int(size)], b[:start-n], true
}

// uvarintBefore reads the reversed varint at the end of b.
func uvarintBefore(b []byte) (v uint64, n int) {
	for n < binary.MaxVarintLen32 && n < len(b) {
		c := b[len(b)-1-n]
		v |= uint64(c&0x7f) << (7 * n)
		if n++; c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

func (l *packedList) each(i int, reverse bool, visit func([]byte) bool) {
	passed := 0
	take := func(e []byte) (more bool) {
		passed++
		return passed <= i || visit(e)
	}
	if reverse {
		i = l.n - 1 - i
	}
	if l.walk(reverse, take) && passed != l.n {
		l.damaged = true
	}
}

// walk visits all elements until visit returns false, and reports whether it never did.
func (l *packedList) walk(reverse bool, visit func([]byte) bool) bool {
	first, last, next := l.front, l.back, firstElement
	if reverse {
		first, last, next = last, first, lastElement
	}
	for _, e := range slices.Backward(first) {
		if !visit(e) {
			return false
		}
	}
	for rest := l.body; len(rest) > 0; {
		var e []byte
		var ok bool
		if e, rest, ok = next(rest); !ok {
			l.damaged = true
			return false
		}
		if !visit(e) {
			return false
		}
	}
	for _, e := range last {
		if !visit(e) {
			return false
		}
	}
	return true
}

// expand moves all elements to back. It returns false if the list is damaged.
func (l *packedList) expand() bool {
	if len(l.front) > 0 || len(l.body) > 0 {
		all := make([][]byte, 0, l.n)
		l.each(0, false, func(e []byte) bool {
			all = append(all, e)
			return true
		})
		l.front, l.body, l.back = l.front[:0], nil, all
	}
	l.damaged = l.damaged || len(l.back) != l.n
	l.changed = true
	return !l.damaged
}

func (l *packedList) set(i int, element []byte) {
	if l.expand() {
		l.back[i] = element
	}
}

func (l *packedList) insert(i int, element []byte) {
	if l.expand() {
		l.back = slices.Insert(l.back, i, element)
		l.n++
	}
}

func (l *packedList) cut(from, to int) {
	if l.expand() {
		l.back = slices.Delete(l.back, from, to)
		l.n = len(l.back)
	}
}

func (l *packedList) remove(indexes []int) {
	if len(indexes) == 0 || !l.expand() {
		return
	}
	kept := l.back[:indexes[0]]
	for i := indexes[0]; i < l.n; i++ {
		if len(indexes) > 0 && indexes[0] == i {
			indexes = indexes[1:]
		} else {
			kept = append(kept, l.back[i])
		}
	}
	l.back, l.n = kept, len(kept)
}
