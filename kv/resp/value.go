package resp

import "bytes"

// Each key is one record of the store. A string is stored as it is, so that programs that use
// the store directly see the same values as clients. Any other value begins with mark and a
// byte for its type:
//
//	s   a string that itself begins with mark
//	h   a packed hash: see packed.go
//	H   a packed hash that was once too large for Redis's list encoding
//	i   a packed set of integers
//	u   a packed set in Redis's list encoding
//	U   a packed set that was once too large for it
//	l   a packed list, see list.go
//	z   a packed sorted set, see sortedset.go
//	Z   a packed sorted set that was once too large for Redis's list encoding
//	g   the header of a hash that is spread over nodes: see spread.go
//	t   the header of a set that is spread over nodes
//	q   the header of a list that is spread over nodes: see quicklist.go
//	y   the header of a sorted set that is spread over nodes: see spreadsorted.go
//
// A value of at most markSize bytes is always a string, so a store of 8-byte values holds
// strings only.
//
// The keys of database 0 are stored as they are, with two exceptions. The empty key, which the
// store cannot hold, is stored as mark and 'e'; a key that begins with mark is stored with mark
// and 'k' before it. Any key of another database is stored with mark, 'd' and the database's
// number before it, a byte from 1 to 255. So no key of one database is stored as a key of another.
// After the mark, 'n' and 'o' begin the keys of nodes and their owners, which no client sees.
const (
	mark     = "\xff\x00redy\x00"
	markSize = len(mark) + 1
)

// MaxDatabases is the upper limit of Options.Databases.
const MaxDatabases = 1 << 8

type valueType uint8

const (
	typeNone valueType = iota
	typeString
	typeHash
	typeTableHash
	typeIntSet
	typeSet
	typeTableSet
	typeList
	typeSorted
	typeSkipSorted
	typeSpreadHash
	typeSpreadSet
	typeSpreadList
	typeSpreadSorted
	typeOther // written by a later version
)

var typeBytes = [...]byte{
	typeString: 's', typeHash: 'h', typeTableHash: 'H', typeIntSet: 'i', typeSet: 'u', typeTableSet: 'U',
	typeList: 'l', typeSorted: 'z', typeSkipSorted: 'Z',
	typeSpreadHash: 'g', typeSpreadSet: 't', typeSpreadList: 'q', typeSpreadSorted: 'y',
}

// typeOfByte has the types by their bytes.
var typeOfByte = func() (types [256]valueType) {
	for i := range types {
		types[i] = typeOther
	}
	for t, b := range typeBytes {
		if b != 0 {
			types[b] = valueType(t)
		}
	}
	return types
}()

// family returns the type that stands for all that clients do not tell apart: typeNone, typeString,
// typeHash, typeSet, typeList, typeSorted or typeOther.
func (t valueType) family() valueType {
	switch t {
	case typeTableHash, typeSpreadHash:
		return typeHash
	case typeIntSet, typeTableSet, typeSpreadSet:
		return typeSet
	case typeSpreadList:
		return typeList
	case typeSkipSorted, typeSpreadSorted:
		return typeSorted
	}
	return t
}

// isSpread reports whether values of the type are spread over nodes.
func (t valueType) isSpread() bool { return t >= typeSpreadHash && t <= typeSpreadSorted }

// isElements reports whether values of the type are hashes or sets.
func (t valueType) isElements() bool { return t.family() == typeHash || t.family() == typeSet }

// isFor reports whether a command on values of the family only applies to this type.
func (t valueType) isFor(only valueType) bool { return only == typeNone || t.family() == only }

// name returns TYPE's reply.
func (t valueType) name() string {
	switch t.family() {
	case typeNone:
		return "none"
	case typeString:
		return "string"
	case typeHash:
		return "hash"
	case typeSet:
		return "set"
	case typeList:
		return "list"
	case typeSorted:
		return "zset"
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
	return typeOfByte[value[len(mark)]], value[markSize:]
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

// storedKey returns the record's key for a client's key of a database.
func storedKey(db uint8, key []byte) []byte {
	switch {
	case db != 0:
		return appendKey(nil, db, key)
	case len(key) == 0:
		return []byte(mark + "e")
	case key[0] == mark[0] && marked(key):
		return append([]byte(mark+"k"), key...)
	}
	return key
}

// appendKey appends the record's key for a key of a database other than 0.
func appendKey(dst []byte, db uint8, key []byte) []byte {
	dst = append(dst, mark...)
	dst = append(dst, 'd', db)
	return append(dst, key...)
}

// shownKey is the inverse of storedKey.
func shownKey(stored []byte) (db uint8, key []byte) {
	switch {
	case !marked(stored):
		return 0, stored
	case len(stored) == markSize && stored[len(mark)] == 'e':
		return 0, nil
	case len(stored) > markSize && stored[len(mark)] == 'd' && stored[markSize] != 0:
		return stored[markSize], stored[markSize+1:]
	}
	return 0, bytes.TrimPrefix(stored, []byte(mark+"k"))
}

// KeyClass returns the database of a record's key. A program sets it as [kv.Options.KeyClass],
// with CountKeys, so that DBSIZE need not scan the store.
func KeyClass(key []byte) uint8 {
	db, _ := shownKey(key)
	return db
}
