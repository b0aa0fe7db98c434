package resp

import (
	"encoding/binary"
	"hash/crc64"
	"math"
	"math/bits"
	"strconv"

	"github.com/redykv/redykv/kv"
)

// DUMP and RESTORE exchange values with Redis in the format of its database files: a type, the
// value, the format's version in two bytes, and the CRC-64 of all that. DUMP writes the
// simplest form, of version 10, which Redis 7.0 and later read. RESTORE reads every form in
// which Redis writes strings and hashes. The form of a type never changes: later versions add
// types, so RESTORE ignores the version.
const (
	dumpVersion = 10

	dumpString       = 0
	dumpList         = 1
	dumpSet          = 2
	dumpOldSorted    = 3 // with scores in decimal
	dumpHash         = 4
	dumpSorted       = 5
	dumpZiplistList  = 10
	dumpIntSet       = 11
	dumpZiplistSort  = 12
	dumpZiplist      = 13
	dumpZiplists     = 14 // a list in ziplists
	dumpListpack     = 16
	dumpListpackSort = 17
	dumpQuickList    = 18 // a list in listpacks and single elements
	dumpSetListpack  = 20
	dumpEarlyTimed   = 22 // a hash whose fields may expire, in Redis before 7.4 and in Valkey
	dumpEarlyTimes   = 23 // the same as a listpack
	dumpTimed        = 24 // a hash whose fields may expire: the least expiry, then before each field its expiry or 0
	dumpTimes        = 25 // the same as a listpack, with the expiry after each pair
	dumpLeastExpires = 8  // bytes of the least expiry

	dumpFooter = 2 + 8
)

// Encodings of a length, by the first byte's upper bits. special marks an encoded string,
// whose kind is in the lower bits.
const (
	len6       = 0
	len14      = 1
	len32      = 0x80
	len64      = 0x81
	special    = 3
	specialInt = 3 // kinds below it: an integer of 1, 2 or 4 bytes
	compressed = 3
)

// dumpCRC is the table of Redis's polynomial.
var dumpCRC = crc64.MakeTable(bits.Reverse64(0xad93d23594c935a9))

// checksum returns the CRC-64 with initial and final value 0. Go's begins and ends with an
// inversion.
func checksum(b []byte) uint64 { return ^crc64.Update(math.MaxUint64, dumpCRC, b) }

func dump(c *client, r request) {
	key := c.key(r.arg(1))
	c.readRecord(replyDump, key)
	c.worker.noteRead(key)
}

// answerDump appends the dump of a record's value.
func (c *client) answerDump(value []byte) {
	switch t, content := typed(value); t.family() {
	case typeString:
		c.finishDump(appendDumpString([]byte{dumpString}, content))
	case typeHash, typeSet:
		c.dumpElements(t.family(), &packed{rest: content, family: t.family()})
	case typeList:
		c.worker.list.open(content)
		c.dumpList(&c.worker.list)
	case typeSorted:
		c.worker.sorted.open(t, content)
		c.dumpSorted(&c.worker.sorted)
	default:
		c.error(errWrongType)
	}
}

// dumpElements appends the dump of a hash or set.
func (c *client) dumpElements(family valueType, e elements) {
	kind := byte(dumpSet)
	if family == typeHash {
		kind = dumpHash
	}
	b := appendDumpLength([]byte{kind}, e.len())
	e.each(func(field, value []byte) bool {
		if b = appendDumpString(b, field); family == typeHash {
			b = appendDumpString(b, value)
		}
		return true
	})
	if text := e.err(); text != "" {
		c.error(text)
		return
	}
	c.finishDump(b)
}

// finishDump appends a dump that lacks its footer.
func (c *client) finishDump(b []byte) {
	b = binary.LittleEndian.AppendUint16(b, dumpVersion)
	c.out = appendBulk(c.out, binary.LittleEndian.AppendUint64(b, checksum(b)))
}

func appendDumpLength(b []byte, n int) []byte {
	switch {
	case n < 1<<6:
		return append(b, byte(n))
	case n < 1<<14:
		return append(b, len14<<6|byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, len32), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, len64), uint64(n))
}

func appendDumpString(b, s []byte) []byte { return append(appendDumpLength(b, len(s)), s...) }

func restoreOptions(r request) (replace, absolute bool, err string) {
	idle, frequency := false, false // at most one may be given; neither has an effect
	for i := 4; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "replace"):
			replace = true
		case is(option, "absttl"):
			absolute = true
		case i+1 < r.len() && (is(option, "idletime") && !frequency || is(option, "freq") && !idle):
			idle, frequency = is(option, "idletime"), is(option, "freq")
			i++
			n, ok := parseInt(r.arg(i))
			switch {
			case !ok:
				return false, false, errNotInteger
			case idle && n < 0:
				return false, false, "ERR Invalid IDLETIME value, must be >= 0"
			case frequency && (n < 0 || n > 255):
				return false, false, "ERR Invalid FREQ value, must be >= 0 and <= 255"
			}
		default:
			return false, false, errSyntax
		}
	}
	return replace, absolute, ""
}

func restore(c *client, r request) {
	replace, absolute, err := restoreOptions(r)
	if err != "" {
		c.fail(err)
		return
	}
	ttl, ok := parseInt(r.arg(2))
	var p pairs
	var value []byte
	switch {
	case !ok:
		err = errNotInteger
	case ttl < 0:
		err = "ERR Invalid TTL value, must be >= 0"
	default:
		value, err = undump(r.arg(3), &p, c.server.opts.MaxBulk)
	}
	now := c.now.UnixMilli()
	if ttl > 0 && !absolute {
		ttl = min(ttl, math.MaxInt64-now) + now
	}
	elements := err == "" && p.live > 0
	// BUSYKEY takes precedence over other errors, as in Redis.
	m := c.modify(r.arg(1), func(m *modification) kv.Verdict {
		switch {
		case m.found && !replace:
			return m.refuse(errBusyKey)
		case err != "":
			return m.refuse(err)
		case ttl > 0 && ttl <= now:
			return m.removeAll()
		case elements:
			return m.replaceAll(&p, ttl)
		}
		return m.replaceValue(value, ttl)
	}, replySimpleOK)
	if t, _ := typed(value); elements || t != typeString {
		m.collects, m.fields, c.worker.defers = true, -1, true
	}
}

// undump returns the record's value for the dump of a string, or reads the elements of a hash or set
// into p, or returns the error reply. most limits the bytes of a string.
func undump(b []byte, p *pairs, most int) (value []byte, err string) {
	if len(b) < dumpFooter+1 {
		return nil, errBadDump
	}
	body, sum := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	if sum != checksum(body) {
		return nil, errBadDump
	}
	d := undumper{b: body[1 : len(body)-2], most: most}
	switch body[0] {
	case dumpString:
		value = storedString(d.string())
	case dumpTimed, dumpTimes:
		d.take(dumpLeastExpires)
		fallthrough
	case dumpHash, dumpZiplist, dumpListpack:
		d.hash(p, body[0])
	case dumpSet, dumpIntSet, dumpSetListpack:
		d.set(p, body[0])
	case dumpList, dumpZiplistList, dumpZiplists, dumpQuickList:
		value = d.readList(body[0])
	case dumpSorted, dumpOldSorted, dumpZiplistSort, dumpListpackSort:
		value = d.readSorted(body[0])
	case dumpEarlyTimed, dumpEarlyTimes:
		return nil, errFieldExpires
	default:
		return nil, errBadFormat
	}
	if d.failed || len(d.b) > 0 || value == nil && body[0] != dumpString && p.live == 0 {
		return nil, errBadFormat
	}
	if d.expires {
		return nil, errFieldExpires
	}
	return value, ""
}

// undumper decodes a dump. After a failure, all results are empty.
type undumper struct {
	b       []byte
	most    int  // most bytes of a string, and of all decompressed strings together
	left    int  // pairs still to be read
	expires bool // a field expires
	failed  bool
}

// take returns the next n bytes.
func (d *undumper) take(n uint64) []byte {
	if d.failed || n > uint64(len(d.b)) {
		d.failed = true
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

// number reads a big-endian number of n bytes, up to 8.
func (d *undumper) number(n int) uint64 {
	var b [8]byte
	copy(b[8-n:], d.take(uint64(n)))
	return binary.BigEndian.Uint64(b[:])
}

// length reads a length, or the kind of an encoded string.
func (d *undumper) length() (n uint64, isSpecial bool) {
	switch c := d.number(1); {
	case c>>6 == len6:
		return c, false
	case c>>6 == len14:
		return c&63<<8 | d.number(1), false
	case c == len32:
		return d.number(4), false
	case c == len64:
		return d.number(8), false
	case c>>6 == special:
		return c & 63, true
	}
	d.failed = true
	return 0, false
}

func (d *undumper) plainLength() uint64 {
	n, isSpecial := d.length()
	d.failed = d.failed || isSpecial
	return n
}

// beginHash reads the number of a hash's pairs. Each pair takes at least two bytes.
func (d *undumper) beginHash() {
	n := d.plainLength()
	if d.failed || n > uint64(len(d.b)/2) {
		d.failed = true
		return
	}
	d.left = int(n)
}

func (d *undumper) string() []byte {
	n, isSpecial := d.length()
	switch {
	case !isSpecial:
		return d.take(n)
	case n < specialInt:
		return littleInt(d.take(1 << n))
	case n == compressed:
		packed, size := d.plainLength(), d.plainLength()
		return d.unpack(d.take(packed), size)
	}
	d.failed = true
	return nil
}

// littleInt formats a little-endian signed integer of up to 8 bytes in decimal.
func littleInt(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	unused := 64 - 8*len(b)
	return strconv.AppendInt(nil, int64(littleUint(b)<<unused)>>unused, 10)
}

// unpack decompresses LZF: literal runs, and references to earlier output.
func (d *undumper) unpack(in []byte, size uint64) (out []byte) {
	if d.failed || size > uint64(d.most) {
		d.failed = true
		return nil
	}
	d.most -= int(size)
	for len(in) > 0 && !d.failed {
		c := int(in[0])
		in = in[1:]
		if c < 32 { // a literal run of c+1 bytes
			if c >= len(in) {
				d.failed = true
				break
			}
			out = append(out, in[:c+1]...)
			in = in[c+1:]
			continue
		}
		n := c >> 5
		if n == 7 && len(in) > 0 {
			n += int(in[0])
			in = in[1:]
		}
		if len(in) == 0 {
			d.failed = true
			break
		}
		from := len(out) - (c&31<<8 | int(in[0])) - 1
		in = in[1:]
		if from < 0 || uint64(len(out)+n+2) > size {
			d.failed = true
			break
		}
		for range n + 2 {
			out = append(out, out[from])
			from++
		}
	}
	d.failed = d.failed || uint64(len(out)) != size
	return out
}

// addTo adds a pair. A duplicate field is an error.
func (d *undumper) addTo(p *pairs, field, value []byte) {
	if !d.failed {
		d.failed = !p.set(field, value)
	}
}

// hash reads the pairs of a hash of the given type.
func (d *undumper) hash(p *pairs, kind byte) {
	if kind != dumpHash && kind != dumpTimed {
		d.list(p, d.string(), kind)
		return
	}
	p.load(nil, typeHash)
	d.beginHash()
	for d.left > 0 && !d.failed {
		d.left--
		if kind == dumpTimed && d.plainLength() != 0 {
			d.expires = true
		}
		d.addTo(p, d.string(), d.string())
	}
}

// set reads the members of a set of the given type.
func (d *undumper) set(p *pairs, kind byte) {
	p.load(nil, typeIntSet)
	switch kind {
	case dumpIntSet:
		d.ints(p, d.string())
		return
	case dumpSetListpack:
		p.typ = typeSet
		l := undumper{b: d.string(), failed: d.failed}
		l.take(4 + 2)
		for !l.failed && len(l.b) > 0 && l.b[0] != 0xff {
			l.addTo(p, l.packEntry(), nil)
		}
		l.take(1) // the end marker
		d.failed = l.failed || len(l.b) > 0
		return
	}
	n := d.plainLength()
	if n > uint64(len(d.b)) {
		d.failed = true
	}
	for i := uint64(0); i < n && !d.failed; i++ {
		member := d.string()
		if i == 0 {
			p.expect(member, int(n))
		}
		d.addTo(p, member, nil)
	}
}

// ints reads an intset: the size of an integer, their number, and the integers.
func (d *undumper) ints(p *pairs, b []byte) {
	l := undumper{b: b, failed: d.failed}
	size, n := littleUint(l.take(4)), littleUint(l.take(4))
	if size != 2 && size != 4 && size != 8 || n*size != uint64(len(l.b)) {
		d.failed = true
		return
	}
	for range n {
		l.addTo(p, littleInt(l.take(size)), nil)
	}
	d.failed = d.failed || l.failed
}

// littleUint returns a little-endian number.
func littleUint(b []byte) (n uint64) {
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	return n
}

// list reads the pairs of a listpack or ziplist.
func (d *undumper) list(p *pairs, b []byte, kind byte) {
	l := undumper{b: b, failed: d.failed}
	zip := kind == dumpZiplist
	if zip {
		l.take(4 + 4 + 2)
	} else {
		l.take(4 + 2)
	}
	p.load(nil, typeHash)
	for !l.failed && len(l.b) > 0 && l.b[0] != 0xff {
		var pair [2][]byte
		for i := range pair {
			if zip {
				pair[i] = l.zipEntry()
			} else {
				pair[i] = l.packEntry()
			}
		}
		if kind == dumpTimes && string(l.packEntry()) != "0" {
			d.expires = true
		}
		l.addTo(p, pair[0], pair[1])
	}
	l.take(1) // the end marker
	d.failed = l.failed || len(l.b) > 0
}

// packEntry reads an entry of a listpack, and the length after it.
func (d *undumper) packEntry() (s []byte) {
	before := len(d.b)
	switch c := d.number(1); {
	case c>>7 == 0:
		s = strconv.AppendInt(nil, int64(c), 10)
	case c>>6 == 2:
		s = d.take(c & 63)
	case c>>5 == 6: // 13-bit integer
		s = strconv.AppendInt(nil, int64(c&31<<8|d.number(1))<<51>>51, 10)
	case c>>4 == 14:
		s = d.take(c&15<<8 | d.number(1))
	case c == 0xf0: // little-endian, unlike all other lengths
		s = d.take(uint64(bits.ReverseBytes32(uint32(d.number(4)))))
	case c >= 0xf1 && c <= 0xf4:
		s = littleInt(d.take([]uint64{2, 3, 4, 8}[c-0xf1]))
	default:
		d.failed = true
	}
	size, back := before-len(d.b), uint64(1)
	for limit := 127; size > limit && back < 5; limit = (limit+1)<<7 - 1 {
		back++
	}
	d.take(back)
	return s
}

// zipIntegers are the sizes in bytes of a ziplist's integers, by the first byte of an entry.
var zipIntegers = [256]uint64{0xc0: 2, 0xd0: 4, 0xe0: 8, 0xf0: 3, 0xfe: 1}

// zipEntry reads an entry of a ziplist, with the previous entry's length before it.
func (d *undumper) zipEntry() []byte {
	if d.number(1) == 0xfe {
		d.take(4)
	}
	switch c := d.number(1); {
	case c>>6 == 0:
		return d.take(c)
	case c>>6 == 1:
		return d.take(c&63<<8 | d.number(1))
	case c == 0x80:
		return d.take(d.number(4))
	case zipIntegers[c] > 0:
		return littleInt(d.take(zipIntegers[c]))
	case c >= 0xf1 && c <= 0xfd:
		return strconv.AppendInt(nil, int64(c&15)-1, 10)
	}
	d.failed = true
	return nil
}
