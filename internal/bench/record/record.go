// Package record has the records that packages ycsb and store measure: their keys, and values
// that show which record they belong to.
package record

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// KeySize is the size of every key in bytes: the record's number, little-endian.
const KeySize = 8

// PutKey writes the key of record n into key[:KeySize].
//
// It is one store of 8 bytes. For PutUint64 the compiler emits several stores if it knows that
// n is small, and a later 8-byte load of the key then waits for all of them, and for all
// earlier loads.
func PutKey(key []byte, n uint64) {
	*(*uint64)(unsafe.Pointer(unsafe.SliceData(key[:KeySize]))) = n
}

// KeyNumber returns the record number of a key.
func KeyNumber(key []byte) uint64 { return binary.LittleEndian.Uint64(key) }

// Word returns the i-th 8-byte word of the value of record n. It depends on both, so that
// a value of another record, or one mixed from two positions, is detected. No word of record 0
// is zero, as unwritten memory would be.
func Word(n uint64, i int) uint64 {
	const odd, step = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9
	return (n+1)*odd + uint64(i)*step
}

// FillValue writes the value of record n, of any length, into value.
func FillValue(value []byte, n uint64) {
	i := 0
	for ; len(value) >= 8; i++ {
		binary.LittleEndian.PutUint64(value, Word(n, i))
		value = value[8:]
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], Word(n, i))
	copy(value, last[:])
}

// StampEnds writes the first and the last word of record n's value into value, which has 8
// bytes or more. [EndsMatch] checks only these, and this costs less than FillValue.
func StampEnds(value []byte, n uint64) {
	binary.LittleEndian.PutUint64(value, Word(n, 0))
	if last := len(value)/8 - 1; last > 0 {
		binary.LittleEndian.PutUint64(value[8*last:], Word(n, last))
	}
}

// EndsMatch reports whether value has size bytes and begins and ends as the value of record n
// does. It is cheap enough for every read; [CheckValue] compares the whole value.
func EndsMatch(value []byte, n uint64, size int) bool {
	if len(value) != size || size < 8 {
		return CheckValue(value, n, size) == nil
	}
	last := size/8 - 1
	return binary.LittleEndian.Uint64(value) == Word(n, 0) &&
		binary.LittleEndian.Uint64(value[8*last:]) == Word(n, last)
}

// CheckValue compares value with the value of record n, of size bytes. The error has the
// position of the first difference.
func CheckValue(value []byte, n uint64, size int) error {
	if len(value) != size {
		return fmt.Errorf("record %d: value of %d bytes, want %d", n, len(value), size)
	}
	var word [8]byte
	for i := 0; i < size; i++ {
		if i%8 == 0 {
			binary.LittleEndian.PutUint64(word[:], Word(n, i/8))
		}
		if value[i] != word[i%8] {
			return fmt.Errorf("record %d: byte %d of the value is %#02x, want %#02x", n, i, value[i], word[i%8])
		}
	}
	return nil
}
