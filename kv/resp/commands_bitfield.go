package resp

import (
	"math"

	"github.com/redykv/redykv/kv"
)

// BITFIELD: integers of any width in a string.

const (
	errFieldType = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
	errOverflows = "ERR Invalid OVERFLOW type specified"
	errFieldRO   = "ERR BITFIELD_RO only supports the GET subcommand"
)

// overflow says what happens to a number that its field cannot hold.
type overflow uint8

const (
	overflowWrap overflow = iota
	overflowSat
	overflowFail
)

// fieldOp is an operation of BITFIELD.
type fieldOp struct {
	kind   byte // 'g'et, 's'et or 'i'ncrby
	signed bool
	width  int64
	at     int64
	value  int64
	over   overflow
}

// bitField implements BITFIELD and BITFIELD_RO.
func bitField(c *client, r request) {
	ops, refusal := c.fieldOps(r, len(r.arg(0)) == len("bitfield_ro"))
	if refusal != "" {
		c.fail(refusal)
		return
	}
	end := int64(0) // of the string that is written to
	for _, op := range ops {
		if op.kind != 'g' {
			end = max(end, op.at+op.width)
		}
	}
	if end == 0 {
		c.read(replyText, r.arg(1)).text = func(c *client, _ *reply, s []byte, _ bool) {
			c.out = appendArray(c.out, len(ops))
			for _, op := range ops {
				c.out = appendInt(c.out, op.get(s))
			}
		}
		return
	}
	var results []fieldResult
	m := c.modify(r.arg(1), func(m *modification) kv.Verdict {
		results = results[:0]
		m.growTo((end + 7) >> 3)
		changed := int64(len(m.u.New)) > int64(len(m.content))
		for _, op := range ops {
			result, writes := op.run(m.u.New)
			results, changed = append(results, result), changed || writes
		}
		if !changed {
			return kv.Keep
		}
		return m.putNew()
	}, func(_ *modification, out []byte, resp3 bool) []byte {
		out = appendArray(out, len(results))
		for _, result := range results {
			if result.none {
				out = appendNull(out, resp3)
			} else {
				out = appendInt(out, result.n)
			}
		}
		return out
	})
	m.only = typeString
}

func (c *client) fieldOps(r request, readOnly bool) (ops []fieldOp, refusal string) {
	over, writes := overflowWrap, false
	for i := 2; i < r.len(); {
		rest := r.len() - i
		op := fieldOp{over: over}
		size := 4
		switch word := r.arg(i); {
		case is(word, "get") && rest >= 3:
			op.kind, size = 'g', 3
		case is(word, "set") && rest >= 4:
			op.kind = 's'
		case is(word, "incrby") && rest >= 4:
			op.kind = 'i'
		case is(word, "overflow") && rest >= 2:
			switch mode := r.arg(i + 1); {
			case is(mode, "wrap"):
				over = overflowWrap
			case is(mode, "sat"):
				over = overflowSat
			case is(mode, "fail"):
				over = overflowFail
			default:
				return nil, errOverflows
			}
			i += 2
			continue
		default:
			return nil, errSyntax
		}
		var ok bool
		if op.signed, op.width, ok = fieldType(r.arg(i + 1)); !ok {
			return nil, errFieldType
		}
		if op.at, ok = c.bitOffset(r.arg(i+2), op.width, true); !ok {
			return nil, errBitOffset
		}
		if op.kind != 'g' {
			writes = true
			if op.value, ok = parseInt(r.arg(i + 3)); !ok {
				return nil, errNotInteger
			}
		}
		ops = append(ops, op)
		i += size
	}
	if readOnly && writes {
		return nil, errFieldRO
	}
	return ops, ""
}

// onlyGets reports whether all operations of BITFIELD are GET. As in Redis, it does not check their arguments.
func onlyGets(r request) bool {
	for i := 2; i < r.len(); {
		rest := r.len() - i
		switch word := r.arg(i); {
		case is(word, "get") && rest >= 3:
			i += 3
		case is(word, "overflow") && rest >= 2:
			i += 2
		default:
			return false
		}
	}
	return true
}

// fieldType parses a type such as i16 or u8.
func fieldType(name []byte) (signed bool, width int64, ok bool) {
	if len(name) == 0 || name[0] != 'i' && name[0] != 'u' {
		return false, 0, false
	}
	signed = name[0] == 'i'
	width, ok = parseInt(name[1:])
	return signed, width, ok && width >= 1 && (width <= 63 || signed && width == 64)
}

// get returns the number in the field.
func (op *fieldOp) get(s []byte) int64 {
	n := uint64(0)
	for at := op.at; at < op.at+op.width; at++ {
		n = n<<1 | uint64(bitOf(s, at))
	}
	return op.extend(n)
}

// extend returns the number of the lowest bits of n.
func (op *fieldOp) extend(n uint64) int64 {
	if op.signed {
		return int64(n<<(64-op.width)) >> (64 - op.width)
	}
	return int64(n << (64 - op.width) >> (64 - op.width))
}

func (op *fieldOp) put(s []byte, n int64) {
	for i := range op.width {
		at := op.at + i
		bit := byte(n >> (op.width - 1 - i) & 1)
		s[at>>3] = s[at>>3]&^(1<<(7-at&7)) | bit<<(7-at&7)
	}
}

// fieldResult is the reply of one operation; none is null.
type fieldResult struct {
	n    int64
	none bool
}

// run runs the operation on a string that has the field, and reports whether it has changed it.
func (op *fieldOp) run(s []byte) (result fieldResult, writes bool) {
	old := op.get(s)
	if op.kind == 'g' {
		return fieldResult{n: old}, false
	}
	fresh, ok := op.fit(old)
	if !ok {
		return fieldResult{none: true}, false
	}
	op.put(s, fresh)
	if op.kind == 's' {
		return fieldResult{n: old}, fresh != old
	}
	return fieldResult{n: fresh}, fresh != old
}

// fit returns the number to write; ok is false if the field cannot hold it and nothing is written.
func (op *fieldOp) fit(old int64) (fresh int64, ok bool) {
	base, delta := old, op.value
	if op.kind == 's' {
		base, delta = op.value, 0
	}
	least, most := int64(0), int64(math.MaxInt64)
	if op.width < 64 {
		most = 1<<op.width - 1
	}
	if op.signed {
		least, most = math.MinInt64>>(64-op.width), math.MaxInt64>>(64-op.width)
	}
	// SET of a negative number in an unsigned field is one of a large number.
	high := base > most || delta > 0 && base > most-delta || !op.signed && base < 0
	low := !high && (base < least || op.signed && delta < 0 && base < least-delta || !op.signed && base+delta < 0)
	switch {
	case !high && !low:
		return base + delta, true
	case op.over == overflowFail:
		return 0, false
	case op.over == overflowSat && high:
		return most, true
	case op.over == overflowSat:
		return least, true
	}
	return op.extend(uint64(base) + uint64(delta)), true
}
