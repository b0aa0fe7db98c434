package resp

import "bytes"

// What a key holds is one record of the store. A string is its value as it is, so
// that programs that use the store themselves see what clients see. Any other
// value begins with the mark and a byte that says what follows:
//
//	s   a string, which would begin with the mark itself
//	h   a hash: pairs of field and value, see hash.go
//	H   the same, that was too large once for Redis to keep it as a list
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
	typeOther // a version to come knows it
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
