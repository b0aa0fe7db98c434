package hlog

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Bounds of variable-length records.
const (
	MaxKeySize   = 1<<16 - 1
	MaxValueSize = 1<<25 - 8 // its space, in units of 8 bytes, fills 22 bits
)

// Layout is the form of a store's records in the log:
//
//	fixed     header 8 │ key, padded to 8 │ value, padded to 8 │ expiry 8
//	variable  header 8 │ lengths 8 │ key, padded to 8 │ space of the value │ expiry 8
//
// A record has an expiry, in milliseconds of Unix time, if its header says so. The lengths
// word holds the length of the key, that of the value, and the space of the value, which
// does not change when a shorter or longer value is written in its place:
//
//	63..48         47..22            21..0
//	key (bytes)    value (bytes)     space (units of 8 bytes)
type Layout struct {
	keySize, valueSize int // 0, 0: variable
}

const (
	headerSize  = 8
	lengthsSize = 8
	expirySize  = 8
)

// FixedLayout returns the layout of records whose keys and values have these sizes in bytes.
func FixedLayout(keySize, valueSize int) Layout { return Layout{keySize, valueSize} }

// VariableLayout returns the layout of records that hold their lengths.
func VariableLayout() Layout { return Layout{} }

// Fixed reports whether all records have one size.
func (l Layout) Fixed() bool { return l.keySize != 0 }

// WordValues reports whether every value fits in one word, so that a single atomic
// load or store moves it and no sequence lock is needed.
func (l Layout) WordValues() bool { return l.Fixed() && l.valueSize <= 8 }

// Check returns an error if a key and a value of these sizes cannot be a record.
func (l Layout) Check(keySize, valueSize int) error {
	switch {
	case l.Fixed() && keySize != l.keySize:
		return fmt.Errorf("key of %d bytes, want %d", keySize, l.keySize)
	case l.Fixed() && valueSize != l.valueSize:
		return fmt.Errorf("value of %d bytes, want %d", valueSize, l.valueSize)
	case keySize > MaxKeySize:
		return fmt.Errorf("key of %d bytes, at most %d", keySize, MaxKeySize)
	case valueSize > MaxValueSize:
		return fmt.Errorf("value of %d bytes, at most %d", valueSize, MaxValueSize)
	}
	return nil
}

func pad(n int) int { return (n + 7) &^ 7 }

// Size is the space in bytes that a record takes in the log.
func (l Layout) Size(keySize, valueSize int, expires bool) int {
	size := headerSize + pad(keySize) + pad(valueSize)
	if !l.Fixed() {
		size += lengthsSize
	}
	if expires {
		size += expirySize
	}
	return size
}

// smallestPage is the size of the smallest page into which a record always fits, for a fixed
// layout; else 0.
func (l Layout) smallestPage() int {
	if !l.Fixed() {
		return 0
	}
	return 1 << bits.Len(uint(l.Size(l.keySize, l.valueSize, true)+FirstAddress-1))
}

// Probe is the number of bytes to read first if only a record's address is known: the whole
// record of a fixed layout, except its expiry.
func (l Layout) Probe() int {
	if l.Fixed() {
		return l.Size(l.keySize, l.valueSize, false)
	}
	return 256
}

// lengths is the word after the header of variable-length records.
type lengths uint64

func newLengths(key, value, space int) lengths {
	return lengths(key)<<48 | lengths(value)<<22 | lengths(space/8)
}

func (n lengths) key() int   { return int(n >> 48) }
func (n lengths) value() int { return int(n >> 22 & (1<<26 - 1)) }
func (n lengths) space() int { return int(n&(1<<22-1)) * 8 }

// Image is a copy of a record, private to the reader: read from a device, for example.
type Image struct {
	Header  Header
	Key     []byte
	Value   []byte
	Expires int64 // milliseconds of Unix time; 0: never
}

// Decode decodes a record. If need > len(b), need bytes are required: the caller reads them
// and decodes again. Impossible lengths are an error.
func (l Layout) Decode(b []byte) (im Image, need int, err error) {
	fixed := headerSize
	if !l.Fixed() {
		fixed += lengthsSize
	}
	if len(b) < fixed {
		return im, fixed, nil
	}
	im.Header = Header(binary.LittleEndian.Uint64(b))
	if !im.Header.Used() {
		return im, 0, fmt.Errorf("no record: header %#x", uint64(im.Header))
	}
	key, value, space := l.keySize, l.valueSize, pad(l.valueSize)
	if !l.Fixed() {
		n := lengths(binary.LittleEndian.Uint64(b[headerSize:]))
		key, value, space = n.key(), n.value(), n.space()
		if value > space {
			return im, 0, fmt.Errorf("value of %d bytes in a space of %d", value, space)
		}
	}
	valueAt := fixed + pad(key)
	need = valueAt + space
	if im.Header.Expires() {
		need += expirySize
	}
	if len(b) >= need {
		if im.Header.Expires() {
			im.Expires = int64(binary.LittleEndian.Uint64(b[need-expirySize:]))
		}
		im.Key = b[fixed : fixed+key]
		im.Value = b[valueAt : valueAt+value]
	}
	return im, need, nil
}
