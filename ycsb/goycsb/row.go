package goycsb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// A row is one record's fields, in the order of their names, each only once: first the
// heads of all of them, then their values.
//
//	uvarint   number of bytes of all heads
//	heads     of each field: uvarint   length of the name
//	                         bytes     name
//	                         uvarint   length of the value
//	bytes     the values, one after another
//
// Rows of a table are mostly alike but for the values: whether two are, one comparison
// of their heads tells (see shape). No bytes at all are a row without fields.

// errBadRow says that bytes are not a row.
var errBadRow = errors.New("malformed row")

// field is one field of a row.
type field struct {
	name  string
	value []byte
	at    int // where edit.overwrite puts the value
}

// appendRow appends the row of fields, which are in their order.
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

// uvarintSize is how many bytes n takes.
func uvarintSize(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// sorted are values in the order of their names. fields are those of the call before,
// whose memory it takes.
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

// refill puts values into fields that have the same names, as most rows of a table do,
// and says whether they have.
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

// shape is what rows with the same heads have in common: where the values are.
type shape struct {
	head   []byte // what such a row begins with, up to its first value
	length int    // of such a row
	spots  []spot // its fields
}

// spot is where a row has a field: row[from:to] is the value.
type spot struct {
	name     string
	from, to int
}

// fits says whether s is the shape of the row.
func (s *shape) fits(row []byte) bool {
	return len(row) == s.length && string(row[:len(s.head)]) == string(s.head)
}

// learn makes s the shape of the row. After an error it is that of a row without
// fields.
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
		if p.name != string(name) { // mostly it is, and the string there already
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

// nextBytes splits a length and as many bytes off b.
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

// edit puts fields over those of rows.
type edit struct {
	shape  shape   // of the row before
	merged []field // scratch
}

// overwrite puts fields, in their order, over those of a row, in its place. It says
// false, and has changed nothing, unless the row has all of them, each with a value of
// the same length.
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

// merge appends to dst the row old with fields, in their order, put over its own.
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
