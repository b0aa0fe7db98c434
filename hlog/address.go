package hlog

import "sync/atomic"

// MaxAddress is the end of the address space: addresses take 48 bits.
const MaxAddress = 1 << 48

// FirstAddress is the address of the first record of a log. It is above 0, so that address
// 0 can mean "none".
const FirstAddress = 64

// position is the tail as one word, a page and an offset in it, so that one
// compare-and-swap allocates space. An offset of the page's size means that the page is
// full and the next one is not open yet.
type position uint64

// maxPages is the number of pages that a position can distinguish. With pages below 64 KiB
// they end below MaxAddress.
const maxPages = 1 << 32

// addressEnd is the end of the address space of pages of this size.
func addressEnd(pageSize int) int64 { return min(MaxAddress, maxPages*int64(pageSize)) }

func newPosition(page int64, offset int) position { return position(page)<<32 | position(offset) }

func (p position) page() int64 { return int64(p >> 32) }
func (p position) offset() int { return int(uint32(p)) }

// marker is an address that only grows.
type marker struct{ v atomic.Int64 }

func (m *marker) load() int64 { return m.v.Load() }

// raise moves the marker up to addr and reports whether it was below.
func (m *marker) raise(addr int64) bool {
	for old := m.v.Load(); old < addr; old = m.v.Load() {
		if m.v.CompareAndSwap(old, addr) {
			return true
		}
	}
	return false
}
