package ssdtier

import (
	"bytes"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/internal/mem"
)

// Every block of sumUnit bytes of a segment has a checksum, which each write sets and each read
// compares. The sums of all segments are in memory, 2 MiB for each GiB of log. Sync stores
// those that have changed in the file NUMBER.sum beside NUMBER.seg.
//
// After a crash: Sync makes a segment durable before the sums that it copied earlier, so a
// stored sum was of a block on the disk. Blocks above the synced tail may exist or not, with
// or without a sum; Start drops them. Of the blocks that are kept only the one in which the
// tail ends may have been written again since: a log writes that block again, whole, with what
// follows. Its stored sum is that of its old bytes followed by zeros, see grown.
const sumUnit = 4 << 10

// Values of a sum that mean that there is none.
const (
	// sumNone: the block was never written, not whole, or its sum was lost.
	sumNone = 0
	// sumUnverified: the block was written by a version without sums.
	sumUnverified = 0x756e766572696669
)

// sumOf returns the checksum of a block.
func sumOf(block []byte) uint64 {
	h := xxhash.Sum64(block)
	if h == sumNone || h == sumUnverified {
		return ^h
	}
	return h
}

// grown reports whether a block that was written again agrees with a sum up to some offset, at
// or after from, where the log ended when the sum was stored. The older version had zeros after
// that offset; what a torn write left there does not matter.
func grown(block []byte, sum uint64, from int) bool {
	old := bytes.Clone(block)
	if sumOf(old) == sum {
		return true
	}
	for end := len(old) - 1; end >= from; end-- {
		if old[end] == 0 {
			continue
		}
		if old[end] = 0; sumOf(old) == sum {
			return true
		}
	}
	return false
}

// sumsPerPage is the unit in which sums are stored: a page of 4 KiB, for pageSpan bytes of log, 2 MiB.
const (
	sumsPerPage = 512
	pageSpan    = sumUnit * sumsPerPage
)

// sumPage is a page of sums.
type sumPage [sumsPerPage]atomic.Uint64

// sumTable is the sums of one segment, by number of the block. Pages are allocated when they
// are needed. A block has one writer at a time, and any number of readers.
type sumTable struct {
	pages []atomic.Pointer[sumPage]
	// dirty marks the pages that have changed. A writer sets it after the sum; Sync clears
	// it before it copies the sums.
	dirty []atomic.Bool
}

func newSumTable(segmentSize int64) *sumTable {
	n := (segmentSize + pageSpan - 1) / pageSpan
	return &sumTable{pages: make([]atomic.Pointer[sumPage], n), dirty: make([]atomic.Bool, n)}
}

func (t *sumTable) get(block int64) uint64 {
	p := t.pages[block/sumsPerPage].Load()
	if p == nil {
		return sumNone
	}
	return p[block%sumsPerPage].Load()
}

// prefetch prefetches a sum.
func (t *sumTable) prefetch(block int64) {
	if p := t.pages[block/sumsPerPage].Load(); p != nil {
		mem.Prefetch(unsafe.Pointer(&p[block%sumsPerPage]))
	}
}

func (t *sumTable) set(block int64, sum uint64) {
	t.page(block / sumsPerPage)[block%sumsPerPage].Store(sum)
	t.dirty[block/sumsPerPage].Store(true)
}

// page returns a page, and allocates it if there is none.
func (t *sumTable) page(n int64) *sumPage {
	p := t.pages[n].Load()
	if p == nil {
		p = new(sumPage)
		if !t.pages[n].CompareAndSwap(nil, p) {
			p = t.pages[n].Load()
		}
	}
	return p
}

// fill sets the sums of whole blocks that were written from a block's start on.
func (t *sumTable) fill(block int64, data []byte) {
	for ; len(data) >= sumUnit; block++ {
		t.set(block, sumOf(data[:sumUnit]))
		data = data[sumUnit:]
	}
}

// touch marks all pages as dirty.
func (t *sumTable) touch() {
	for n := range t.pages {
		if t.pages[n].Load() != nil {
			t.dirty[n].Store(true)
		}
	}
}

// cut removes the sums of the blocks from one on.
func (t *sumTable) cut(block int64) {
	for n := block / sumsPerPage; n < int64(len(t.pages)); n++ {
		if t.pages[n].Load() == nil {
			continue
		}
		for i := max(block, n*sumsPerPage); i < (n+1)*sumsPerPage; i++ {
			if t.get(i) != sumNone {
				t.set(i, sumNone)
			}
		}
	}
}
