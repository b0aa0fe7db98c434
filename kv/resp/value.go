package resp

import (
	"bytes"
	"encoding/binary"
)

// Each key is one record of the store. A string is stored as it is, so that programs that use
// the store directly see the same values as clients. Any other value begins with mark and a
// byte for its type:
//
//	s   a string that itself begins with mark
//	h   a hash: pairs of field and value, see below
//	H   a hash that was once too large for Redis's list encoding
//
// A value of at most markSize bytes is always a string, so a store of 8-byte values holds
// strings only. Keys are escaped too. The empty key, which the store cannot hold, is stored as
// mark and 'e'; a key that begins with mark is stored with mark and 'k' before it.
const (
	mark     = "\xff\x00redy\x00"
	markSize = len(mark) + 1
)

type valueType uint8

const (
	typeNone valueType = iota
	typeString
	typeHash
	typeLargeHash
	typeOther // written by a later version
)

var typeBytes = [...]byte{typeString: 's', typeHash: 'h', typeLargeHash: 'H'}

func (t valueType) isHash() bool { return t == typeHash || t == typeLargeHash }

// isFor reports whether a command on values of type only applies to this type.
func (t valueType) isFor(only valueType) bool {
	return only == typeNone || t == only || only == typeHash && t.isHash()
}

// name returns TYPE's reply.
func (t valueType) name() string {
	switch t {
	case typeNone:
		return "none"
	case typeString:
		return "string"
	case typeHash, typeLargeHash:
		return "hash"
	}
	return "unknown"
}

func marked(b []byte) bool {
	return len(b) >= len(mark) && b[0] == mark[0] && string(b[:len(mark)]) == mark
}

// typed returns the type of a record's value, and its content.
func typed(value []byte) (t valueType, content []byte) {
	if len(value) <= markSize || !marked(value) {
		return typeString, value
	}
	content = value[markSize:]
	switch value[len(mark)] {
	case 's':
		return typeString, content
	case 'h':
		return typeHash, content
	case 'H':
		return typeLargeHash, content
	}
	return typeOther, content
}

// stringOf returns the string in a record's value; ok is false if it is not a string.
func stringOf(value []byte) (s []byte, ok bool) {
	t, s := typed(value)
	return s, t == typeString
}

// storedString returns the record's value for a string.
func storedString(s []byte) []byte {
	if len(s) <= markSize || !marked(s) {
		return s
	}
	return append(appendMark(nil, typeString), s...)
}

func appendMark(dst []byte, t valueType) []byte {
	dst = append(dst, mark...)
	return append(dst, typeBytes[t])
}

// storedKey returns the record's key for a client's key.
func storedKey(key []byte) []byte {
	switch {
	case len(key) == 0:
		return []byte(mark + "e")
	case key[0] == mark[0] && marked(key):
		return append([]byte(mark+"k"), key...)
	}
	return key
}

// shownKey is the inverse of storedKey.
func shownKey(key []byte) []byte {
	switch {
	case !marked(key):
		return key
	case len(key) == markSize && key[len(mark)] == 'e':
		return nil
	}
	return bytes.TrimPrefix(key, []byte(mark+"k"))
}

// The content of a hash is, for each field in the order of insertion, the field's length, the
// field, the value's length, the value. Lengths are varints. A change of a field writes the
// whole hash.

// hash reads the content of a hash.
type hash struct {
	rest    []byte
	damaged bool // the content is malformed
}

// next returns the next pair.
func (h *hash) next() (field, value []byte, ok bool) {
	if len(h.rest) == 0 || h.damaged {
		return nil, nil, false
	}
	field, ok1 := h.part()
	value, ok2 := h.part()
	h.damaged = !ok1 || !ok2
	return field, value, ok1 && ok2
}

func (h *hash) part() ([]byte, bool) {
	size, n := binary.Uvarint(h.rest)
	if n <= 0 || size > uint64(len(h.rest)-n) {
		return nil, false
	}
	end := n + int(size)
	b := h.rest[n:end:end]
	h.rest = h.rest[end:]
	return b, true
}

// get returns the value of a field, searching the rest.
func (h *hash) get(field []byte) (value []byte, ok bool) {
	for {
		f, v, ok := h.next()
		if !ok || bytes.Equal(f, field) {
			return v, ok
		}
	}
}

// count returns the number of pairs in the rest.
func (h *hash) count() (n int) {
	for _, _, ok := h.next(); ok; _, _, ok = h.next() {
		n++
	}
	return n
}

// pair is a field of a hash and its value. field is nil only if the pair was removed.
type pair struct{ field, value []byte }

// pairs holds the pairs of a hash while it is changed. The slices point into memory of others.
type pairs struct {
	list    []pair
	live    int
	byField map[string]int // index in list by field; nil if few fields are looked up
	numbers []byte         // calculated values
}

// manyLooks is the number of comparisons from which a map is built.
const manyLooks = 1 << 12

// load reads the pairs of a hash, in which looks fields will be looked up. It returns false if
// the hash is damaged.
func (p *pairs) load(content []byte, looks int) bool {
	p.list, p.byField, p.numbers = p.list[:0], nil, p.numbers[:0]
	h := hash{rest: content}
	for field, value, ok := h.next(); ok; field, value, ok = h.next() {
		p.list = append(p.list, pair{field, value})
	}
	p.live = len(p.list)
	if looks > 1 && (len(p.list)+looks)*looks > manyLooks {
		p.byField = make(map[string]int, len(p.list)+looks)
		for i, of := range p.list {
			p.byField[string(of.field)] = i
		}
	}
	return !h.damaged
}

// find returns the index of a field, or -1.
func (p *pairs) find(field []byte) int {
	if p.byField != nil {
		if i, ok := p.byField[string(field)]; ok {
			return i
		}
		return -1
	}
	for i := range p.list {
		if of := p.list[i].field; of != nil && bytes.Equal(of, field) {
			return i
		}
	}
	return -1
}

// set sets a field, and reports whether it is new.
func (p *pairs) set(field, value []byte) (isNew bool) {
	if i := p.find(field); i >= 0 {
		p.list[i].value = value
		return false
	}
	if field == nil {
		field = []byte{}
	}
	if p.byField != nil {
		p.byField[string(field)] = len(p.list)
	}
	p.list = append(p.list, pair{field, value})
	p.live++
	return true
}

// remove removes a field, and reports whether it existed.
func (p *pairs) remove(field []byte) bool {
	i := p.find(field)
	if i < 0 {
		return false
	}
	if p.byField != nil {
		delete(p.byField, string(field))
	}
	p.list[i] = pair{}
	p.live--
	return true
}

// Limits of Redis's list encoding. A hash that exceeded them does not return to it.
const (
	listPairs = 512
	listBytes = 64
)

// appendTo appends the record's value. large is set if the hash was large before.
func (p *pairs) appendTo(dst []byte, large bool) []byte {
	large = large || p.live > listPairs
	for i := range p.list {
		large = large || len(p.list[i].field) > listBytes || len(p.list[i].value) > listBytes
	}
	t := typeHash
	if large {
		t = typeLargeHash
	}
	dst = appendMark(dst, t)
	for _, of := range p.list {
		if of.field != nil {
			dst = appendPart(appendPart(dst, of.field), of.value)
		}
	}
	return dst
}

func appendPart(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// forget drops references to memory of others, and large buffers.
func (p *pairs) forget() {
	clear(p.list)
	p.list, p.byField = p.list[:0], nil
	if cap(p.list) > 1<<10 {
		p.list = nil
	}
}
