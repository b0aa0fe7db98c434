package goycsb

import (
	"slices"
	"unsafe"
)

// view is a reusable map of a row's fields. row is a buffer into which one row after another
// is read, and the map's values are parts of it. If the next row has the same shape, as most
// rows of a table do, the map stays valid without a change.
type view struct {
	row    []byte
	fields map[string][]byte // of the last decoded row

	// The input of fields.
	at     *byte // the row's memory; nil: fields is not valid
	shape  shape
	wanted []string
}

// decode returns the wanted fields of the row, or all of them if wanted is empty. The map and
// its values belong to the view, and are valid until row changes.
func (v *view) decode(wanted []string) (map[string][]byte, error) {
	if v.at == nil || len(v.row) == 0 || &v.row[0] != v.at || !v.shape.fits(v.row) || !same(v.wanted, wanted) {
		if err := v.look(wanted); err != nil {
			return nil, err
		}
	}
	return v.fields, nil
}

// look rebuilds fields.
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

// same reports whether two lists of names are equal. They usually are the same strings, since
// a workload has one list for all its reads. Comparing them here saves a call for each, and a
// tenth of a read of ten fields.
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
