package kv

import (
	"fmt"
	"strconv"

	"github.com/redykv/redykv/kv/internal/index"
)

// Cursor is where a scan in steps goes on. 0 is its beginning, and what it ends
// with. It is a number below 2^53, so that clients of any protocol can keep it,
// those too that keep numbers as floating-point ones.
//
//	52  51..16              15..0
//	0   position in the     turn: which of the unfinished
//	    order of buckets    steps there (see sweeps); 0: none
//
// A position is the number of an index bucket with its bits reversed, as a
// fraction: the lowest bit of the hash comes first. In this order the two buckets
// into which a bucket is split when the index grows take its place, so that a
// scan goes on in an index of another size. A key's position is its hash and
// nothing else: neither writers nor compaction move it, so a scan needs to know
// nothing of the log, and ends.
type Cursor uint64

const turnBits = 16

func newCursor(position uint64, turn uint16) Cursor {
	return Cursor(position<<turnBits | uint64(turn))
}

func (c Cursor) position() uint64 { return uint64(c >> turnBits) }

// ParseCursor is the inverse of String. Any number below 2^52 is a cursor: one that
// no scan gave leads to some of the records.
func ParseCursor(text string) (Cursor, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= index.Positions<<turnBits {
		return 0, fmt.Errorf("kv: cursor %q is no number below %d", text, index.Positions<<turnBits)
	}
	return Cursor(n), nil
}

// String is the cursor as a decimal number.
func (c Cursor) String() string { return strconv.FormatUint(uint64(c), 10) }

// CursorAt is the cursor of a scan that begins in the middle, with that share of
// the keys behind it, 0 to 1.
func CursorAt(share float64) Cursor {
	return newCursor(uint64(max(share, 0)*float64(index.Positions))%index.Positions, 0)
}
