package resp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
)

// A small hash or set is packed in the value of its key's record. The content is, for each field in
// the order of insertion, the field's length, the field, the value's length, the value. A set has
// fields only, its members; a set of integers has them in ascending order. Lengths are varints. A
// change of a field writes the whole value.

// elements are the elements of a hash or a set. Those of a set have no values.
type elements interface {
	len() int
	// get returns the value of a field, nil in a set.
	get(field []byte) (value []byte, ok bool)
	// each visits all elements until visit returns false. visit may keep the slices until the end
	// of the command.
	each(visit func(field, value []byte) bool)
	// random returns one of the elements, of which there must be some.
	random() (field, value []byte)
	// err returns "", or the error reply after which all other results are undefined.
	err() string
}

// changeable are elements that can be changed. They may keep the slices that they are given until
// the end of the batch.
type changeable interface {
	elements
	// expect prepares a set for n members to be added, of which the first one is given. It reports
	// whether that changes the encoding.
	expect(first []byte, n int) (converted bool)
	set(field, value []byte) (isNew bool)
	remove(field []byte) bool
}

// packed reads the elements of a packed content. As a reader it has the rest of the content; the
// methods of elements read all of it.
type packed struct {
	rest    []byte
	family  valueType
	damaged bool // the content is malformed
}

// next returns the next element of the rest.
func (p *packed) next() (field, value []byte, ok bool) {
	if len(p.rest) == 0 || p.damaged {
		return nil, nil, false
	}
	field, ok = p.part()
	if ok && p.family == typeHash {
		value, ok = p.part()
	}
	p.damaged = !ok
	return field, value, ok
}

func (p *packed) part() ([]byte, bool) {
	size, n := binary.Uvarint(p.rest)
	if n <= 0 || size > uint64(len(p.rest)-n) {
		return nil, false
	}
	end := n + int(size)
	b := p.rest[n:end:end]
	p.rest = p.rest[end:]
	return b, true
}

// note takes over the damage that a copy of the reader has found.
func (p *packed) note(copied packed) { p.damaged = p.damaged || copied.damaged }

func (p *packed) get(field []byte) (value []byte, ok bool) {
	r := *p
	defer func() { p.note(r) }()
	for {
		f, v, ok := r.next()
		if !ok || bytes.Equal(f, field) {
			return v, ok
		}
	}
}

func (p *packed) len() (n int) {
	p.each(func(_, _ []byte) bool { n++; return true })
	return n
}

func (p *packed) each(visit func(field, value []byte) bool) {
	r := *p
	for field, value, ok := r.next(); ok && visit(field, value); field, value, ok = r.next() {
	}
	p.note(r)
}

func (p *packed) random() (field, value []byte) {
	n := rand.IntN(max(p.len(), 1))
	p.each(func(f, v []byte) bool { field, value = f, v; n--; return n >= 0 })
	return field, value
}

func (p *packed) err() string {
	switch {
	case !p.damaged:
		return ""
	case p.family == typeHash:
		return errDamagedHash
	}
	return errDamagedSet
}

// look is a field that is looked up, and what is found.
type look struct {
	field, value []byte
	found        bool
}

// fewLooks is the number of fields that are looked up without allocating memory.
const fewLooks = 16

// looksAtOnce returns how many of n fields are looked up together: of a table, so many that their nodes take
// little memory.
func looksAtOnce(e elements, n int) int {
	if _, ok := e.(*hashTable); ok {
		return min(n, chunk)
	}
	return n
}

// lookUp looks fields up and appends what it finds to looks, in their order. It reads a packed content
// once. The values are valid until the next call.
func lookUp(e elements, fields [][]byte, looks []look) []look {
	looks = slices.Grow(looks, len(fields))
	for _, field := range fields {
		looks = append(looks, look{field: field})
	}
	if p, ok := e.(*packed); ok {
		p.lookUp(looks)
		return looks
	}
	if t, ok := e.(*hashTable); ok {
		t.fetchOf(fields)
	}
	for i := range looks {
		looks[i].value, looks[i].found = e.get(looks[i].field)
	}
	return looks
}

// lookUp compares each field of the content with the sorted ones of looks, until all are found.
func (p *packed) lookUp(looks []look) {
	var few [fewLooks]int
	order := slices.Grow(few[:0], len(looks)) // indexes of looks in the order of their fields
	for i := range looks {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(looks[a].field, looks[b].field) })
	left := len(looks)
	p.each(func(field, value []byte) bool {
		at, _ := slices.BinarySearchFunc(order, field, func(i int, field []byte) int { return bytes.Compare(looks[i].field, field) })
		for ; at < len(order) && bytes.Equal(looks[order[at]].field, field); at++ {
			looks[order[at]].value, looks[order[at]].found = value, true
			left--
		}
		return left > 0
	})
}

// Limits of Redis's encodings. A hash or set that exceeded those of a list does not return to it.
const (
	listPairs   = 512 // of a hash
	listMembers = 128 // of a set
	listBytes   = 64  // of a field, a value or a member
	setInts     = 512 // of a set of integers
)

// with returns the packed type of a hash or set of type t, also for one that is spread, after a
// field was set. n is the number of elements then, with a new one.
func (t valueType) with(field, value []byte, n int) valueType {
	long := len(field) > listBytes || len(value) > listBytes
	switch t {
	case typeHash:
		if long || n > listPairs {
			return typeTableHash
		}
	case typeIntSet:
		if _, isInt := parseInt(field); isInt {
			if n > setInts {
				return typeTableSet
			}
			return t
		}
		return typeSet.with(field, value, n)
	case typeSet:
		if long || n > listMembers {
			return typeTableSet
		}
	}
	return t
}

// expecting returns the packed type of a set of type t before n members are added, the first one
// of which is given. typeNone stands for a set that does not exist.
func (t valueType) expecting(first []byte, n int) valueType {
	_, isInt := parseInt(first)
	switch {
	case t == typeNone && isInt && n <= setInts:
		return typeIntSet
	case t == typeNone && n <= listMembers:
		return typeSet
	case t == typeNone, t == typeIntSet && n > setInts, t == typeSet && n > listMembers:
		return typeTableSet
	}
	return t
}

// pair is a field of a hash and its value, or a member of a set. field is nil only if the pair was
// removed.
type pair struct{ field, value []byte }

// pairs holds the elements of a packed hash or set while it is changed. The slices point into
// memory of others.
type pairs struct {
	list    []pair
	live    int
	typ     valueType      // a packed type
	byField map[string]int // index in list by field; nil if few fields were looked up
	looked  int            // fields that were compared without byField
	damaged bool
}

// manyLooked is the number of comparisons after which a map is built. They take about as long as
// building one of some hundred fields.
const manyLooked = 1 << 14

// load reads the elements of a content of a packed type. It returns false if the content is damaged.
func (p *pairs) load(content []byte, t valueType) bool {
	p.list, p.byField, p.looked, p.typ = p.list[:0], nil, 0, t
	r := packed{rest: content, family: t.family()}
	for field, value, ok := r.next(); ok; field, value, ok = r.next() {
		p.list = append(p.list, pair{field, value})
	}
	p.live, p.damaged = len(p.list), r.damaged
	return !p.damaged
}

// index builds the map.
func (p *pairs) index() {
	p.byField = make(map[string]int, len(p.list))
	for i, of := range p.list {
		if of.field != nil {
			p.byField[string(of.field)] = i
		}
	}
}

// find returns the index of a field, or -1.
func (p *pairs) find(field []byte) int {
	switch {
	case p.typ == typeIntSet:
		if i, ok := p.findInt(field); ok {
			return i
		}
		return -1
	case p.byField == nil && p.looked > manyLooked:
		p.index()
	}
	if p.byField != nil {
		if i, ok := p.byField[string(field)]; ok {
			return i
		}
		return -1
	}
	p.looked += len(p.list)
	for i := range p.list {
		if of := p.list[i].field; of != nil && bytes.Equal(of, field) {
			return i
		}
	}
	return -1
}

// findInt returns where a member is, or belongs, in a set of integers.
func (p *pairs) findInt(member []byte) (at int, found bool) {
	n, isInt := parseInt(member)
	if !isInt {
		return 0, false
	}
	return slices.BinarySearchFunc(p.list, n, func(of pair, n int64) int {
		is, _ := parseInt(of.field)
		return cmp.Compare(is, n)
	})
}

func (p *pairs) len() int { return p.live }

func (p *pairs) get(field []byte) (value []byte, ok bool) {
	i := p.find(field)
	if i < 0 {
		return nil, false
	}
	return p.list[i].value, true
}

func (p *pairs) each(visit func(field, value []byte) bool) {
	for _, of := range p.list {
		if of.field != nil && !visit(of.field, of.value) {
			return
		}
	}
}

func (p *pairs) random() (field, value []byte) {
	for {
		if of := p.list[rand.IntN(len(p.list))]; of.field != nil {
			return of.field, of.value
		}
	}
}

func (p *pairs) err() string {
	damaged := packed{family: p.typ.family(), damaged: p.damaged}
	return damaged.err()
}

func (p *pairs) expect(first []byte, n int) (converted bool) {
	t := p.typ
	if p.live == 0 {
		t = typeNone
	}
	p.typ = t.expecting(first, n)
	return p.typ != t
}

// set sets a field, and reports whether it is new.
func (p *pairs) set(field, value []byte) (isNew bool) {
	i := p.find(field)
	if i >= 0 {
		p.list[i].value = value
		if p.typ == typeHash {
			p.typ = p.typ.with(field, value, p.live)
		}
		return false
	}
	if field == nil {
		field = []byte{}
	}
	p.live++
	if p.typ = p.typ.with(field, value, p.live); p.typ == typeIntSet {
		i, _ = p.findInt(field)
		p.list = slices.Insert(p.list, i, pair{field, nil})
		return true
	}
	if p.byField != nil {
		p.byField[string(field)] = len(p.list)
	}
	p.list = append(p.list, pair{field, value})
	return true
}

// remove removes a field, and reports whether it existed.
func (p *pairs) remove(field []byte) bool {
	i := p.find(field)
	if i < 0 {
		return false
	}
	p.live--
	if p.typ == typeIntSet {
		p.list = slices.Delete(p.list, i, i+1)
		return true
	}
	if p.byField != nil {
		delete(p.byField, string(field))
	}
	p.list[i] = pair{}
	return true
}

// size returns the length of the content.
func (p *pairs) size() (n int) {
	hash := p.typ.family() == typeHash
	for _, of := range p.list {
		if of.field == nil {
			continue
		}
		if n += partSize(of.field); hash {
			n += partSize(of.value)
		}
	}
	return n
}

// appendTo appends the record's value.
func (p *pairs) appendTo(dst []byte) []byte {
	return p.appendContent(appendMark(dst, p.typ))
}

func (p *pairs) appendContent(dst []byte) []byte {
	family := p.typ.family()
	for _, of := range p.list {
		if of.field != nil {
			dst = appendElement(dst, family, of.field, of.value)
		}
	}
	return dst
}

func appendElement(dst []byte, family valueType, field, value []byte) []byte {
	dst = appendPart(dst, field)
	if family == typeHash {
		dst = appendPart(dst, value)
	}
	return dst
}

func appendPart(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// partSize returns the number of bytes that appendPart appends.
func partSize(b []byte) int {
	n := len(b) + 1
	for l := len(b); l >= 0x80; l >>= 7 {
		n++
	}
	return n
}

// clone returns a copy that shares the elements' bytes.
func (p *pairs) clone() pairs {
	c := *p
	c.list, c.byField = slices.Clone(p.list), maps.Clone(p.byField)
	return c
}

// forget drops references to memory of others, and large buffers.
func (p *pairs) forget() {
	clear(p.list)
	p.list, p.byField = p.list[:0], nil
	if cap(p.list) > 1<<10 {
		p.list = nil
	}
}
