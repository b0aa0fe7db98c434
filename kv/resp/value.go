package resp

import (
	"bytes"
	"encoding/binary"
)

// A key is one record of the store. A string is stored as it is, so that programs that use the
// store directly see what clients see. Any other value begins with the mark and a byte for
// what follows:
//
//	s   a string that begins with the mark itself
//	h   a hash: pairs of field and value, see hash.go
//	H   a hash that was once too large for Redis to keep it as a list
//
// A value no longer than mark and byte is a string whatever it is, so a store of
// values of 8 bytes has strings only. Keys have an escape too, as the store has no
// empty key: it is the mark and an e; one that begins with the mark gets the mark
// and a k before it.
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
	typeOther // of a later version
)

var typeBytes = [...]byte{typeString: 's', typeHash: 'h', typeLargeHash: 'H'}

func (t valueType) isHash() bool { return t == typeHash || t == typeLargeHash }

// isFor says whether a command for values of type only can be on one of this type.
func (t valueType) isFor(only valueType) bool {
	return only == typeNone || t == only || only == typeHash && t.isHash()
}

// name is what TYPE says.
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

// typed is what a record's value is, and what is in it.
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

// stringOf is the string of a record's value; ok is false if it is none.
func stringOf(value []byte) (s []byte, ok bool) {
	t, s := typed(value)
	return s, t == typeString
}

// storedString is the value under which a string is stored.
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

// storedKey is the key under which a client's key is stored.
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

// A hash is a record's value, behind the mark: for each field, in the order in
// which they came, its length, the field, its value's length, the value; lengths
// are varints. To change a field is to write the hash anew.

// hash is what is still to be looked at of one.
type hash struct {
	rest    []byte
	damaged bool // it does not end where it should
}

// next is the next pair.
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

// get is the value of a field.
func (h *hash) get(field []byte) (value []byte, ok bool) {
	for {
		f, v, ok := h.next()
		if !ok || bytes.Equal(f, field) {
			return v, ok
		}
	}
}

// count is the number of pairs that are left.
func (h *hash) count() (n int) {
	for {
		if _, _, ok := h.next(); !ok {
			return n
		}
		n++
	}
}

// pair is a field of a hash and its value. The field of one that was deleted is
// nil, which that of no other is.
type pair struct{ field, value []byte }

// pairs is a hash taken apart, to be changed. It refers to bytes of others.
type pairs struct {
	list    []pair
	live    int
	byField map[string]int // of a large one that is asked often
	numbers []byte         // values that were calculated
}

// manyLooks is how many pairs may be compared before a map is made of them.
const manyLooks = 1 << 12

// load takes a hash apart in which so many fields are to be looked for. It says
// whether the hash is sound.
func (p *pairs) load(content []byte, looks int) bool {
	p.list, p.byField, p.numbers = p.list[:0], nil, p.numbers[:0]
	h := hash{rest: content}
	for {
		field, value, ok := h.next()
		if !ok {
			break
		}
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

// find is where a field is; -1: nowhere.
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

// set gives a field a value, and says whether it is new.
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

// remove says whether there was such a field.
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

// Beyond these Redis does not keep a hash as a list; it never goes back.
const (
	listPairs = 512
	listBytes = 64
)

// appendTo appends the record's value. large is whether the hash was large before.
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

// forget lets go of other's bytes, and of much memory.
func (p *pairs) forget() {
	clear(p.list)
	p.list, p.byField = p.list[:0], nil
	if cap(p.list) > 1<<10 {
		p.list = nil
	}
}
