//go:build verbs && linux && cgo

package verbs

// hazards holds the peer's memory that pending reads may access: a write there, and every
// immediate, must wait for them. It counts reads by page in a hash table, so it may report a
// hazard where there is none, but never misses one.
type hazards struct {
	pages [1 << hazardBits]uint32
	wide  int // reads over more than widest pages
	reads int
}

const (
	hazardBits  = 10
	hazardPage  = 12 // bits
	widestPages = 16
)

func hazardSlot(page uint64) uint64 { return page * 0x9e3779b97f4a7c15 >> (64 - hazardBits) }

// span is the range of pages of n > 0 bytes at address.
func span(address uint64, n int) (from, to uint64) {
	return address >> hazardPage, (address + uint64(n) - 1) >> hazardPage
}

// begin counts a read.
func (h *hazards) begin(address uint64, n int) { h.count(address, n, 1) }

// end removes a read that begin counted.
func (h *hazards) end(address uint64, n int) { h.count(address, n, -1) }

func (h *hazards) count(address uint64, n, by int) {
	h.reads += by
	from, to := span(address, n)
	if to-from >= widestPages {
		h.wide += by
		return
	}
	for page := from; page <= to; page++ {
		h.pages[hazardSlot(page)] += uint32(by)
	}
}

// conflicts reports whether a pending read may access the n bytes at address.
func (h *hazards) conflicts(address uint64, n int) bool {
	if h.reads == 0 || n == 0 {
		return false
	}
	from, to := span(address, n)
	if h.wide > 0 || to-from >= widestPages {
		return true
	}
	for page := from; page <= to; page++ {
		if h.pages[hazardSlot(page)] != 0 {
			return true
		}
	}
	return false
}
