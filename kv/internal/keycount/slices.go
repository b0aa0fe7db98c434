package keycount

import "math/bits"

// block has the numbers of keys that expire in the slices of time of a block: a radix tree without
// nodes of a single part. So the sum over many slices takes few steps, wherever they are. The zero
// value has no keys.
type block struct {
	n     int64  // the keys of all slices
	slice int64  // the one slice that has keys or, with parts, any slice of the block
	parts *parts // nil for one slice
}

// parts divide a block of 16 to the power of level+1 slices. At least two of them have keys. A block
// ends with a multiple of its length, as the slices that State merges do.
type parts struct {
	level int
	of    [1 << radixBits]block
}

const radixBits = 4

// levelOf returns the level of the smallest block that has both slices, which differ.
func levelOf(a, b int64) int { return (bits.Len64(uint64((a-1)^(b-1))) - 1) / radixBits }

// part returns the part in which a slice of the block is.
func (p *parts) part(slice int64) *block {
	return &p.of[(slice-1)>>(p.level*radixBits)&(1<<radixBits-1)]
}

func (b *block) empty() bool { return b.n == 0 && b.parts == nil }

// bounds returns the first and the last slice of the block.
func (b *block) bounds() (first, last int64) {
	if b.parts == nil {
		return b.slice, b.slice
	}
	length := int64(1) << ((b.parts.level + 1) * radixBits)
	first = (b.slice-1)&^(length-1) + 1
	return first, first + length - 1
}

// at returns the number of keys of a slice.
func (b *block) at(slice int64) int64 {
	for b.parts != nil {
		if first, last := b.bounds(); slice < first || slice > last {
			return 0
		}
		b = b.parts.part(slice)
	}
	if b.slice != slice {
		return 0
	}
	return b.n
}

// add adds n keys to a slice.
func (b *block) add(slice, n int64) {
	switch first, last := b.bounds(); {
	case b.empty():
		*b = block{n: n, slice: slice}
		return
	case first == last && slice == first:
		b.n += n
		return
	case slice < first || slice > last: // a larger block has both
		p := &parts{level: levelOf(b.slice, slice)}
		*p.part(b.slice) = *b
		b.parts = p
	}
	b.n += n
	part := b.parts.part(slice)
	if part.add(slice, n); part.empty() {
		b.shorten()
	}
}

// take removes the slices up to last, and returns the number of their keys.
func (b *block) take(last int64) (n int64) {
	switch begin, end := b.bounds(); {
	case b.empty() || last < begin:
		return 0
	case end <= last:
		n = b.n
		*b = block{}
		return n
	}
	for i := range b.parts.of {
		n += b.parts.of[i].take(last)
	}
	b.n -= n
	b.shorten()
	return n
}

// shorten replaces a block by its only part that has keys, if there are no others.
func (b *block) shorten() {
	var only block
	for i := range b.parts.of {
		switch part := &b.parts.of[i]; {
		case part.empty():
		case !only.empty():
			return
		default:
			only = *part
		}
	}
	*b = only
}

// merge calls add for numbers of keys by merged slice, in order, several times for some: to returns
// the merged slice of a slice.
func (b *block) merge(to func(slice int64) int64, add func(merged, n int64)) {
	if b.empty() {
		return
	}
	first, last := b.bounds()
	if merged := to(last); first == last || to(first) == merged {
		add(merged, b.n)
		return
	}
	for i := range b.parts.of {
		b.parts.of[i].merge(to, add)
	}
}
