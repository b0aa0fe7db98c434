package resp

import (
	"encoding/binary"
	"math/bits"
	"strings"

	"github.com/redykv/redykv/kv"
)

// Commands on the bits of strings. Bit 0 is the highest of the first byte.

const (
	errBitOffset = "ERR bit offset is not an integer or out of range"
	errBit       = "ERR bit is not an integer or out of range"
	errOneOrZero = "ERR The bit argument must be 1 or 0."
	errBitopNot  = "ERR BITOP NOT must be called with a single source key."
)

// bitOffset parses the offset of a bit in a string, or of a field of width bits. A leading # counts in
// such fields, if that is allowed.
func (c *client) bitOffset(arg []byte, width int64, fields bool) (offset int64, ok bool) {
	unit := int64(1)
	if fields && len(arg) > 0 && arg[0] == '#' {
		arg, unit = arg[1:], width
	}
	n, ok := parseInt(arg)
	most := int64(c.server.opts.MaxBulk) * 8
	if !ok || n < 0 || n > most/unit || n*unit >= most {
		return 0, false
	}
	return n * unit, true
}

func bitOf(s []byte, at int64) int64 {
	if at>>3 >= int64(len(s)) {
		return 0
	}
	return int64(s[at>>3] >> (7 - at&7) & 1)
}

func getBit(c *client, r request) {
	at, ok := c.bitOffset(r.arg(2), 1, false)
	if !ok {
		c.fail(errBitOffset)
		return
	}
	rp := c.read(replyText, r.arg(1))
	rp.n = at
	rp.text = func(c *client, r *reply, s []byte, _ bool) { c.out = appendInt(c.out, bitOf(s, r.n)) }
}

func setBit(c *client, r request) {
	at, ok := c.bitOffset(r.arg(2), 1, false)
	if !ok {
		c.fail(errBitOffset)
		return
	}
	bit, ok := parseInt(r.arg(3))
	if !ok || bit&^1 != 0 {
		c.fail(errBit)
		return
	}
	m := c.modify(r.arg(1), changeBit, replyResult)
	m.only, m.delta, m.expires = typeString, at<<1|bit, 0
}

// changeBit sets the bit m.delta>>1 to the lowest bit of m.delta.
func changeBit(m *modification) kv.Verdict {
	at, bit := m.delta>>1, byte(m.delta&1)
	if m.result = bitOf(m.content, at); at>>3 < int64(len(m.content)) && m.result == int64(bit) {
		return kv.Keep
	}
	m.growTo(at>>3 + 1)
	of := &m.u.New[at>>3]
	*of = *of&^(1<<(7-at&7)) | bit<<(7-at&7)
	return m.putNew()
}

// growTo appends the old string to Update.New, with zeros up to a length.
func (m *modification) growTo(length int64) {
	m.u.New = append(m.u.New, m.content...)
	if more := length - int64(len(m.content)); more > 0 {
		m.u.New = append(m.u.New, make([]byte, more)...)
	}
}

// bitRange is a range of bytes or bits, as BITCOUNT and BITPOS have it.
type bitRange struct {
	start, end     int64
	hasEnd, inBits bool
	empty          bool // for BITCOUNT: the end is before the start, both counted from the end
}

// bitRangeOf parses the range of BITCOUNT, or of BITPOS if pos is set, from the i-th argument on. Redis
// replies with refusal only if the key has a string.
func bitRangeOf(r request, i int, pos bool) (of bitRange, refusal string) {
	of.end = -1
	if i == r.len() {
		return of, ""
	}
	if i+1 == r.len() && !pos || r.len() > i+3 {
		return of, errSyntax
	}
	unit := func() bool {
		if i+2 >= r.len() {
			return true
		}
		of.inBits = is(r.arg(i+2), "bit")
		return of.inBits || is(r.arg(i+2), "byte")
	}
	var ok bool
	if of.start, ok = parseInt(r.arg(i)); !ok {
		return of, errNotInteger
	}
	if pos && !unit() {
		return of, errSyntax
	}
	if i+1 < r.len() {
		of.hasEnd = true
		if of.end, ok = parseInt(r.arg(i + 1)); !ok {
			return of, errNotInteger
		}
	}
	of.empty = !pos && of.start < 0 && of.end < 0 && of.start > of.end // whatever the unit
	if !pos && !of.empty && !unit() {
		return of, errSyntax
	}
	return of, ""
}

// bits returns the first bit of the range in a string, and the one after the last. ok is false if the range
// is empty.
func (of bitRange) bits(length int64) (first, after int64, ok bool) {
	unit := int64(8)
	if of.inBits {
		unit, length = 1, length*8
	}
	start, end := of.start, of.end
	if start < 0 {
		start = max(start+length, 0)
	}
	if end < 0 {
		end = max(end+length, 0)
	}
	if end = min(end, length-1); start > end || of.empty {
		return 0, 0, false
	}
	return start * unit, (end + 1) * unit, true
}

func bitCount(c *client, r request) {
	of, refusal := bitRangeOf(r, 2, false)
	c.read(replyText, r.arg(1)).text = func(c *client, _ *reply, s []byte, found bool) {
		if found && refusal != "" {
			c.error(refusal)
			return
		}
		n := int64(0)
		if first, after, ok := of.bits(int64(len(s))); ok {
			n = countBitsIn(s, first, after)
		}
		c.out = appendInt(c.out, n)
	}
}

// countBitsIn counts the bits of s that are set from first to before after.
func countBitsIn(s []byte, first, after int64) (n int64) {
	for ; first < after && first&7 != 0; first++ {
		n += bitOf(s, first)
	}
	for ; after > first && after&7 != 0; after-- {
		n += bitOf(s, after-1)
	}
	s = s[first>>3 : after>>3]
	for ; len(s) >= 8; s = s[8:] {
		n += int64(bits.OnesCount64(binary.LittleEndian.Uint64(s)))
	}
	for _, b := range s {
		n += int64(bits.OnesCount8(b))
	}
	return n
}

func bitPos(c *client, r request) {
	bit, ok := parseInt(r.arg(2))
	switch {
	case !ok:
		c.fail(errNotInteger)
		return
	case bit&^1 != 0:
		c.fail(errOneOrZero)
		return
	}
	of, refusal := bitRangeOf(r, 3, true)
	c.read(replyText, r.arg(1)).text = func(c *client, _ *reply, s []byte, found bool) {
		if found && refusal != "" {
			c.error(refusal)
			return
		}
		c.out = appendInt(c.out, of.position(s, bit, found))
	}
}

// position returns the reply of BITPOS.
func (of bitRange) position(s []byte, bit int64, found bool) int64 {
	if !found {
		return -bit // a missing key is a string of endless zeros
	}
	first, after, ok := of.bits(int64(len(s)))
	if !ok {
		return -1
	}
	skip := byte(-(1 - bit)) // bytes without the bit
	for at := first; at < after; {
		if at&7 == 0 && at+8 <= after && s[at>>3] == skip {
			at += 8
			continue
		}
		if bitOf(s, at) == bit {
			return at
		}
		at++
	}
	if bit == 0 && !of.hasEnd {
		return after // the zeros after the string
	}
	return -1
}

// bitOperations are the operations of BITOP, on the bytes of two strings.
var bitOperations = map[string]func(a, b byte) byte{
	"and": func(a, b byte) byte { return a & b }, "or": func(a, b byte) byte { return a | b },
	"xor": func(a, b byte) byte { return a ^ b }, "not": nil,
}

func bitOp(c *client, r request) {
	name := strings.ToLower(text(r.arg(1), shown))
	combine, ok := bitOperations[name]
	switch {
	case !ok:
		c.fail(errSyntax)
		return
	case name == "not" && r.len() != 4:
		c.fail(errBitopNot)
		return
	}
	var all [][]byte
	for i := 2; i < r.len(); i++ {
		all = append(all, storedKey(c.db, r.arg(i)))
	}
	c.atomically(all, func() {
		var result []byte
		for i, key := range all[1:] {
			value, _, found, ok := c.take(key)
			if !ok {
				return
			}
			s, isString := []byte(nil), true
			if found {
				s, isString = stringOf(value)
			}
			if !isString {
				c.fail(errWrongType)
				return
			}
			switch {
			case name == "not":
				for _, b := range s {
					result = append(result, ^b)
				}
			case i == 0:
				result = append(result, s...)
			default:
				result = combineBits(result, s, combine)
			}
		}
		c.storeBits(all[0], result)
	})
}

// combineBits combines two strings; the shorter one is followed by zeros.
func combineBits(a, b []byte, combine func(a, b byte) byte) []byte {
	if more := len(b) - len(a); more > 0 {
		a = append(a, make([]byte, more)...)
	}
	for i := range a {
		of := byte(0)
		if i < len(b) {
			of = b[i]
		}
		a[i] = combine(a[i], of)
	}
	return a
}

// storeBits sets a record's key to the result of BITOP, and replies with its length.
func (c *client) storeBits(key, result []byte) {
	if len(result) == 0 {
		c.modifyRecord(replyPart, key, changeDelete, nil)
	} else {
		c.upsertRecord(replyPart, key, storedString(result), 0)
	}
	c.flush()
	if !c.partFailed() && !c.quit {
		c.out = appendInt(c.reply(), int64(len(result)))
	}
}
