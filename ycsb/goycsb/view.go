package goycsb

import (
	"bytes"
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
	// has the same heads at the same places.
	at     *byte
	length int
	wanted []string
	heads  []byte // of all fields, one after the other
	marks  []mark // where they are
}

// mark is where a field's head, its name and its value's length, is in a row.
type mark struct{ from, to int }

// decode returns the fields of the row that are wanted, or all of them where wanted is
// empty. The map and its values are the view's, and hold until row is changed.
func (v *view) decode(wanted []string) (map[string][]byte, error) {
	if v.unchanged(wanted) {
		return v.fields, nil
	}
	v.at = nil
	if v.fields == nil {
		v.fields = make(map[string][]byte, max(len(wanted), 8))
	}
	clear(v.fields)
	v.heads, v.marks = v.heads[:0], v.marks[:0]
	for rest := v.row; len(rest) > 0; {
		name, value, after, err := nextField(rest)
		if err != nil {
			return nil, err
		}
		from := len(v.row) - len(rest)
		m := mark{from, len(v.row) - len(after) - len(value)}
		v.marks, v.heads = append(v.marks, m), append(v.heads, v.row[m.from:m.to]...)
		if len(wanted) == 0 {
			v.fields[string(name)] = value
		} else if i := slices.Index(wanted, string(name)); i >= 0 {
			v.fields[wanted[i]] = value // its string is there already
		}
		rest = after
	}
	v.wanted = append(v.wanted[:0], wanted...)
	if len(v.row) > 0 {
		v.at, v.length = &v.row[0], len(v.row)
	}
	return v.fields, nil
}

// unchanged says whether fields is that of the row.
func (v *view) unchanged(wanted []string) bool {
	if len(v.row) == 0 || v.at != &v.row[0] || v.length != len(v.row) || !slices.Equal(v.wanted, wanted) {
		return false
	}
	heads := v.heads
	for _, m := range v.marks {
		n := m.to - m.from
		if !bytes.Equal(v.row[m.from:m.to], heads[:n]) {
			return false
		}
		heads = heads[n:]
	}
	return true
}
