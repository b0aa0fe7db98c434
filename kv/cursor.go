package kv

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/redykv/redykv/hlog"
)

// Cursor is where a scan goes on. 0 is its beginning, and what it ends with. It is
// a number, so that clients of any protocol can keep it; it stays good over
// compactions and restarts.
//
//	63..50    49..45  44..0
//	mantissa  shift   next address, in units of 8 bytes
//
// Mantissa and shift make the address at which the scan ends, in units of 8 bytes
// as well: that need not be exact, if only it is not below the tail at which the
// scan began and does not move while writers go on.
type Cursor uint64

const (
	cursorNextBits  = 45
	cursorShiftBits = 5
	mantissaBits    = 64 - cursorNextBits - cursorShiftBits
)

// newCursor is for addresses that are multiples of 8. It may move end up, to
// where it does not move any more.
func newCursor(next, end int64) Cursor {
	units := uint64(end) / 8
	shift := max(bits.Len64(units)-mantissaBits, 0)
	mantissa := (units + 1<<shift - 1) >> shift
	if mantissa == 1<<mantissaBits {
		mantissa, shift = mantissa>>1, shift+1
	}
	if shift == 1<<cursorShiftBits { // as far as addresses go
		mantissa, shift = 1<<mantissaBits-1, shift-1
	}
	return Cursor(mantissa<<(cursorNextBits+cursorShiftBits) | uint64(shift)<<cursorNextBits | uint64(next)/8)
}

func (c Cursor) next() int64 { return int64(c&(1<<cursorNextBits-1)) * 8 }

func (c Cursor) end() int64 {
	mantissa := int64(c >> (cursorNextBits + cursorShiftBits))
	shift := c >> cursorNextBits & (1<<cursorShiftBits - 1)
	return min(mantissa<<shift, hlog.MaxAddress/8-1) * 8
}

// ParseCursor is the inverse of String. Any number is a cursor: one that no scan
// gave leads to some of the records, or none.
func ParseCursor(text string) (Cursor, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("kv: cursor %q is no number of 64 bits", text)
	}
	return Cursor(n), nil
}

// String is the cursor as a decimal number.
func (c Cursor) String() string { return strconv.FormatUint(uint64(c), 10) }

// CursorAt is the cursor of a scan that begins in the middle: at the page that is
// that share of the log from its beginning, 0 to 1. It finds what lies from there
// on.
func (st *Store) CursorAt(share float64) Cursor {
	begin, end := st.log.Begin(), st.log.SettleTo(0)
	next := begin + int64(share*float64(end-begin))
	next = max(next&^int64(st.log.PageSize()-1), begin)
	return newCursor(next, end)
}
