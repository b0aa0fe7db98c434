package goycsb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// A row is one record's fields, one after another:
//
//	uvarint   length of the name
//	bytes     name
//	uvarint   length of the value
//	bytes     value
//
// Rows that this package writes have their fields in the order of their names,
// and each only once.

// errBadRow says that bytes are not a row.
var errBadRow = errors.New("malformed row")

// appendField adds one field to a row.
func appendField(row []byte, name string, value []byte) []byte {
	row = binary.AppendUvarint(row, uint64(len(name)))
	row = append(row, name...)
	row = binary.AppendUvarint(row, uint64(len(value)))
	return append(row, value...)
}

// sortedNames appends the names of fields to names, which is empty, in order.
func sortedNames(names []string, fields map[string][]byte) []string {
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// nextField splits the first field off a row that is not empty. name and value
// are parts of row.
func nextField(row []byte) (name, value, rest []byte, err error) {
	if name, rest, err = nextBytes(row); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: name of a field: %w", errBadRow, err)
	}
	if value, rest, err = nextBytes(rest); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: value of field %q: %w", errBadRow, name, err)
	}
	return name, value, rest, nil
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

// overwriteRow puts fields over those of a row, in its place. names are those of fields,
// sorted, as the row's are. It says false, and has changed nothing, unless the row has
// all of them, each with a value of the same length.
func overwriteRow(row []byte, fields map[string][]byte, names []string) bool {
	spots := row
	for _, name := range names {
		spot, rest := spotOf(spots, name)
		if spot == nil || len(spot) != len(fields[name]) {
			return false
		}
		spots = rest
	}
	for _, name := range names {
		spot, rest := spotOf(row, name)
		copy(spot, fields[name])
		row = rest
	}
	return true
}

// spotOf is the value of a field in a row, and what follows it; nil if there is none.
func spotOf(row []byte, name string) (spot, rest []byte) {
	for len(row) > 0 {
		has, value, rest, err := nextField(row)
		if err != nil {
			return nil, nil
		}
		if string(has) == name {
			return value, rest
		}
		row = rest
	}
	return nil, nil
}

// mergeRow appends to dst the row old with new fields put over it, in the order
// of their names: names are those of fields, sorted, and old's are sorted too.
func mergeRow(dst, old []byte, fields map[string][]byte, names []string) ([]byte, error) {
	for len(old) > 0 {
		name, value, rest, err := nextField(old)
		if err != nil {
			return nil, err
		}
		for len(names) > 0 && names[0] < string(name) {
			dst = appendField(dst, names[0], fields[names[0]])
			names = names[1:]
		}
		if len(names) > 0 && names[0] == string(name) {
			value, names = fields[names[0]], names[1:]
		}
		dst = appendField(dst, string(name), value)
		old = rest
	}
	for _, name := range names {
		dst = appendField(dst, name, fields[name])
	}
	return dst, nil
}
