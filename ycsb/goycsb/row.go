package goycsb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// A row has the fields of one record, in the order of their names: first all heads, then all
// values.
//
//	uvarint   number of bytes of all heads
//	heads     of each field: uvarint   length of the name
//	                         bytes     name
//	                         uvarint   length of the value
//	bytes     the values, one after another
//
// Most rows of a table have equal heads; one comparison checks that (see shape). An empty row
// has no fields.

// errBadRow is the error of a malformed row.
var errBadRow = errors.New("malformed row")

// field is one field of a row.
type field struct {
	name  string
	value []byte
	at    int // offset at which edit.overwrite puts the value
}

// appendRow appends the encoding of fields, which are sorted by name.
func appendRow(row []byte, fields []field) []byte {
	heads := 0
	for i := range fields {
		name, value := len(fields[i].name), len(fields[i].value)
		heads += uvarintSize(name) + name + uvarintSize(value)
	}
	row = binary.AppendUvarint(row, uint64(heads))
	for i := range fields {
		row = binary.AppendUvarint(row, uint64(len(fields[i].name)))
		row = append(row, fields[i].name...)
		row = binary.AppendUvarint(row, uint64(len(fields[i].value)))
	}
	for i := range fields {
		row = append(row, fields[i].value...)
	}
	return row
}

// uvarintSize returns the size of n as a uvarint.
func uvarintSize(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// sorted returns values sorted by name. It reuses fields, the result of the call before.
func sorted(fields []field, values map[string][]byte) []field {
	if len(values) > 1 && refill(fields, values) {
		return fields
	}
	fields = fields[:0]
	for name, value := range values {
		fields = append(fields, field{name: name, value: value})
	}
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	return fields
}

// refill puts values into fields if they have the same names, and reports whether they have.
func refill(fields []field, values map[string][]byte) bool {
	if len(fields) != len(values) {
		return false
	}
	for i := range fields {
		value, ok := values[fields[i].name]
		if !ok {
			return false
		}
		fields[i].value = value
	}
	return true
}

// shape has the layout of all rows with the same heads.
type shape struct {
	head   []byte // the row up to its first value
	length int    // size of the row
	spots  []spot // of the fields
}

// spot locates a field: row[from:to] is its value.
type spot struct {
	name     string
	from, to int
}

// fits reports whether the row has the shape s.
func (s *shape) fits(row []byte) bool {
	return len(row) == s.length && string(row[:len(s.head)]) == string(s.head)
}

// learn sets s to the shape of the row. After an error, s is the shape of an empty row.
func (s *shape) learn(row []byte) error {
	if s.fits(row) {
		return nil
	}
	spots := s.spots
	s.length, s.head, s.spots = 0, s.head[:0], spots[:0]
	if len(row) == 0 {
		return nil
	}
	heads, values, err := nextBytes(row)
	if err != nil {
		return fmt.Errorf("%w: heads: %w", errBadRow, err)
	}
	n, at := 0, len(row)-len(values)
	for ; len(heads) > 0; n++ {
		name, rest, err := nextBytes(heads)
		if err != nil {
			return fmt.Errorf("%w: name of a field: %w", errBadRow, err)
		}
		size, bytes := binary.Uvarint(rest)
		if bytes <= 0 || size > uint64(len(row)-at) {
			return fmt.Errorf("%w: field %q: a value of %d bytes where %d are left", errBadRow, name, size, len(row)-at)
		}
		if n == len(spots) {
			spots = append(spots, spot{})
		}
		p := &spots[n]
		if p.name != string(name) { // usually equal: keep the existing string
			p.name = string(name)
		}
		p.from, p.to = at, at+int(size)
		at, heads = p.to, rest[bytes:]
	}
	if at < len(row) {
		return fmt.Errorf("%w: %d bytes behind the last value", errBadRow, len(row)-at)
	}
	s.spots, s.head, s.length = spots[:n], append(s.head, row[:len(row)-len(values)]...), len(row)
	return nil
}

// nextBytes splits a length and that many bytes off b.
func nextBytes(b []byte) (head, rest []byte, err error) {
	length, n := binary.Uvarint(b)
	switch {
	case n <= 0:
		return nil, nil, errors.New("bad length")
	case length > uint64(len(b)-n):
		return nil, nil, fmt.Errorf("%d bytes where %d are left", length, len(b)-n)
	}
	end := n + int(length)
	return b[n:end:end], b[end:], nil
}

// edit merges fields into rows.
type edit struct {
	shape  shape   // of the last row
	merged []field // scratch
}

// overwrite replaces fields of a row in place. It reports false, and changes nothing, unless
// the row has all of them with values of the same lengths. fields is sorted by name.
func (e *edit) overwrite(row []byte, fields []field) bool {
	if e.shape.learn(row) != nil {
		return false
	}
	spots := e.shape.spots
	for i := range fields {
		f := &fields[i]
		for len(spots) > 0 && spots[0].name != f.name {
			spots = spots[1:]
		}
		if len(spots) == 0 || spots[0].to-spots[0].from != len(f.value) {
			return false
		}
		f.at = spots[0].from
	}
	for i := range fields {
		copy(row[fields[i].at:], fields[i].value)
	}
	return true
}

// merge appends to dst the row old with fields, sorted by name, merged into it.
func (e *edit) merge(dst, old []byte, fields []field) ([]byte, error) {
	if err := e.shape.learn(old); err != nil {
		return dst, err
	}
	e.merged = e.merged[:0]
	for _, spot := range e.shape.spots {
		for len(fields) > 0 && fields[0].name < spot.name {
			e.merged, fields = append(e.merged, fields[0]), fields[1:]
		}
		f := field{name: spot.name, value: old[spot.from:spot.to]}
		if len(fields) > 0 && fields[0].name == spot.name {
			f, fields = fields[0], fields[1:]
		}
		e.merged = append(e.merged, f)
	}
	return appendRow(dst, append(e.merged, fields...)), nil
}
