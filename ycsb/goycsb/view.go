package goycsb

import (
	"encoding/binary"
	"math"
	"slices"
)

// view is the fields of a row as a map, made to be used again: row is a buffer that one
// row after another is read into, and the map's values are parts of it. Rows of one
// table are mostly alike in names and lengths. Then what the map holds for the last row
// holds for the next one in the same memory, and all that is left to do is to see that
// it is so.
type view struct {
	row    []byte
	fields map[string][]byte // of the row that decode saw last

	// What fields was made of: valid while row lies at the same place, is as long, and
	// has the same heads (names, and lengths of names and values) at the same places.
	at     *byte // nil: nothing is
	length int
	wanted []string
	heads  []piece
}

// piece is up to 8 bytes of a field's head: those of the word at an offset that mask
// covers.
type piece struct {
	at         int
	mask, want uint64
}

// decode returns the fields of the row that are wanted, or all of them where wanted is
// empty. The map and its values are the view's, and hold until row is changed.
func (v *view) decode(wanted []string) (map[string][]byte, error) {
	if v.unchanged(wanted) {
		return v.fields, nil
	}
	v.at, v.heads = nil, v.heads[:0]
	if v.fields == nil {
		v.fields = make(map[string][]byte, max(len(wanted), 8))
	}
	clear(v.fields)
	for rest := v.row; len(rest) > 0; {
		name, value, after, err := nextField(rest)
		if err != nil {
			return nil, err
		}
		v.note(len(v.row)-len(rest), len(v.row)-len(after)-len(value))
		if len(wanted) == 0 {
			v.fields[string(name)] = value
		} else if i := slices.Index(wanted, string(name)); i >= 0 {
			v.fields[wanted[i]] = value // its string is there already
		}
		rest = after
	}
	if len(v.row) >= wordSize {
		v.at, v.length, v.wanted = &v.row[0], len(v.row), append(v.wanted[:0], wanted...)
	}
	return v.fields, nil
}

const wordSize = 8

// note keeps the head that is row[from:to]. Rows shorter than a word are not worth it.
func (v *view) note(from, to int) {
	for len(v.row) >= wordSize && from < to {
		n := min(to-from, wordSize)
		at := min(from, len(v.row)-wordSize)
		mask := uint64(math.MaxUint64) >> (8 * (wordSize - n)) << (8 * (from - at))
		v.heads = append(v.heads, piece{at, mask, binary.LittleEndian.Uint64(v.row[at:]) & mask})
		from += n
	}
}

// unchanged says whether fields is that of the row.
func (v *view) unchanged(wanted []string) bool {
	if v.at == nil || len(v.row) != v.length || &v.row[0] != v.at || !slices.Equal(v.wanted, wanted) {
		return false
	}
	for i := range v.heads {
		h := &v.heads[i]
		if binary.LittleEndian.Uint64(v.row[h.at:])&h.mask != h.want {
			return false
		}
	}
	return true
}
