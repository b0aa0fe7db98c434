package goycsb

import (
	"slices"
	"unsafe"
)

// view is the fields of a row as a map, made to be used again: row is a buffer that one
// row after another is read into, and the map's values are parts of it. Rows of one
// table are mostly of one shape. Then what the map holds for the last row holds for the
// next one in the same memory.
type view struct {
	row    []byte
	fields map[string][]byte // of the row that decode saw last

	// What fields was made of.
	at     *byte // where the row lies; nil: fields is that of no row
	shape  shape
	wanted []string
}

// decode returns the fields of the row that are wanted, or all of them where wanted is
// empty. The map and its values are the view's, and hold until row is changed.
func (v *view) decode(wanted []string) (map[string][]byte, error) {
	if v.at == nil || len(v.row) == 0 || &v.row[0] != v.at || !v.shape.fits(v.row) || !same(v.wanted, wanted) {
		if err := v.look(wanted); err != nil {
			return nil, err
		}
	}
	return v.fields, nil
}

// look makes fields anew.
func (v *view) look(wanted []string) error {
	v.at = nil
	if err := v.shape.learn(v.row); err != nil {
		return err
	}
	if v.fields == nil {
		v.fields = make(map[string][]byte, max(len(wanted), 8))
	}
	clear(v.fields)
	for _, s := range v.shape.spots {
		if len(wanted) == 0 || slices.Contains(wanted, s.name) {
			v.fields[s.name] = v.row[s.from:s.to:s.to]
		}
	}
	if len(v.row) > 0 {
		v.at, v.wanted = &v.row[0], append(v.wanted[:0], wanted...)
	}
	return nil
}

// same says whether two lists of names are equal. Mostly they are the same strings, since
// a workload has one list for all its reads: to see that here saves a call for each, and
// of a read of ten fields a tenth.
func same(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if len(a[i]) != len(b[i]) || unsafe.StringData(a[i]) != unsafe.StringData(b[i]) {
			return slices.Equal(a[i:], b[i:])
		}
	}
	return true
}
