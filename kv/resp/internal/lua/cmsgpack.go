package lua

import (
	"encoding/binary"
	"math"

	glua "github.com/yuin/gopher-lua"
)

// The library cmsgpack, as Redis has it: MessagePack without the types of extensions.

// packDepth is the most levels of tables; deeper ones become null.
const packDepth = 16

var packConstants = map[string]glua.LValue{
	"_NAME": glua.LString("cmsgpack"), "_VERSION": glua.LString("lua-cmsgpack 0.4.0"),
	"_COPYRIGHT": glua.LString("Copyright (C) 2012, Salvatore Sanfilippo"), "_DESCRIPTION": glua.LString("MessagePack C implementation for Lua"),
}

func (st *State) packFunctions() functions {
	return functions{
		"pack": st.pack,
		"unpack": func(l *glua.LState) int {
			return st.unpackMessage(l, 0, 0)
		},
		"unpack_one": func(l *glua.LState) int {
			return st.unpackMessage(l, 1, optInt(l, 2, 0))
		},
		"unpack_limit": func(l *glua.LState) int {
			return st.unpackMessage(l, checkInt(l, 2), optInt(l, 3, 0))
		},
	}
}

type packer struct {
	st  *State
	l   *glua.LState
	out []byte
}

func (st *State) pack(l *glua.LState) int {
	if l.GetTop() == 0 {
		badArgument(l, 0, "MessagePack pack needs input.")
	}
	p := packer{st: st, l: l}
	for i := 1; i <= l.GetTop(); i++ {
		p.value(l.Get(i), 0)
	}
	st.meter.Charge(l, len(p.out))
	l.Push(glua.LString(p.out))
	return 1
}

func (p *packer) value(v glua.LValue, depth int) {
	p.st.meter.work(p.l, 1)
	if len(p.out) > MaxString {
		p.l.RaiseError("%s", errString.Error())
	}
	switch v := v.(type) {
	case glua.LString:
		p.st.meter.Charge(p.l, len(v))
		p.head(len(v), 0xa0, 32, 0xd9, 0xda, 0xdb)
		p.out = append(p.out, v...)
	case glua.LNumber:
		p.number(float64(v))
	case glua.LBool:
		if v {
			p.out = append(p.out, 0xc3)
		} else {
			p.out = append(p.out, 0xc2)
		}
	case *glua.LTable:
		if depth == packDepth {
			p.out = append(p.out, 0xc0)
			return
		}
		p.table(v, depth+1)
	default:
		p.out = append(p.out, 0xc0)
	}
}

// head appends the head of n bytes or elements: in one byte below small, else behind the first
// code whose size has room. A code of 0 does not exist.
func (p *packer) head(n int, one byte, small int, codes ...byte) {
	switch {
	case n < small:
		p.out = append(p.out, one|byte(n))
	case n <= math.MaxUint8 && codes[0] != 0:
		p.out = append(p.out, codes[0], byte(n))
	case n <= math.MaxUint16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, codes[1]), uint16(n))
	default:
		p.out = binary.BigEndian.AppendUint32(append(p.out, codes[2]), uint32(n))
	}
}

func (p *packer) number(f float64) {
	switch n := toInt(f); {
	case float64(n) != f || f >= 1<<63:
		if f32 := float32(f); float64(f32) == f {
			p.out = binary.BigEndian.AppendUint32(append(p.out, 0xca), math.Float32bits(f32))
		} else {
			p.out = binary.BigEndian.AppendUint64(append(p.out, 0xcb), math.Float64bits(f))
		}
	case n >= 0 && n <= 0x7f, n < 0 && n >= -32:
		p.out = append(p.out, byte(n))
	case n >= 0 && n <= math.MaxUint8:
		p.out = append(p.out, 0xcc, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0xcd), uint16(n))
	case n >= 0 && n <= math.MaxUint32:
		p.out = binary.BigEndian.AppendUint32(append(p.out, 0xce), uint32(n))
	case n >= 0:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0xcf), uint64(n))
	case n >= math.MinInt8:
		p.out = append(p.out, 0xd0, byte(n))
	case n >= math.MinInt16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0xd1), uint16(n))
	case n >= math.MinInt32:
		p.out = binary.BigEndian.AppendUint32(append(p.out, 0xd2), uint32(n))
	default:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0xd3), uint64(n))
	}
}

func (p *packer) table(t *glua.LTable, depth int) {
	n, last, isArray := 0, 0.0, true
	for k, _ := t.Next(glua.LNil); k != glua.LNil; k, _ = t.Next(k) {
		i, ok := k.(glua.LNumber)
		isArray = isArray && ok && i >= 1 && float64(i) == math.Floor(float64(i))
		last = max(last, float64(i))
		n++
		p.st.meter.work(p.l, 1)
	}
	if isArray && n > 0 && last == float64(n) {
		p.head(n, 0x90, 16, 0, 0xdc, 0xdd)
		for i := 1; i <= n; i++ {
			p.value(t.RawGetInt(i), depth)
		}
		return
	}
	if n == 0 {
		p.out = append(p.out, 0x90)
		return
	}
	p.head(n, 0x80, 16, 0, 0xde, 0xdf)
	for k, v := t.Next(glua.LNil); k != glua.LNil; k, v = t.Next(k) {
		p.value(k, depth)
		p.value(v, depth)
	}
}

type unpacker struct {
	st *State
	l  *glua.LState
	s  string
	at int
}

// unpackMessage unpacks up to most values, or all if most is 0, from an offset. With a limit, the
// first result is the offset of what follows, or -1.
func (st *State) unpackMessage(l *glua.LState, most, offset int) int {
	u := unpacker{st: st, l: l, s: checkString(l, 1), at: offset}
	if offset < 0 || most < 0 {
		l.RaiseError("Invalid request to unpack with offset of %d and limit of %d.", offset, len(u.s))
	}
	if offset > len(u.s) {
		l.RaiseError("Start offset %d greater than input length %d.", offset, len(u.s))
	}
	all := most == 0
	if !all {
		l.Push(glua.LNil)
	}
	place, n := l.GetTop(), 0
	for u.at < len(u.s) && (all || n < most) {
		if n == maxResults {
			l.RaiseError("too many results to unpack")
		}
		l.Push(u.value(0))
		n++
	}
	if all {
		return n
	}
	next := -1
	if u.at < len(u.s) {
		next = u.at
	}
	l.Replace(place, glua.LNumber(next))
	return n + 1
}

func (u *unpacker) take(n int) string {
	if n < 0 || n > len(u.s)-u.at {
		u.l.RaiseError("Missing bytes in input.")
	}
	taken := u.s[u.at : u.at+n]
	u.at += n
	return taken
}

// unsigned reads a number of n bytes.
func (u *unpacker) unsigned(n int) (v uint64) {
	for _, c := range []byte(u.take(n)) {
		v = v<<8 | uint64(c)
	}
	return v
}

// unpackNesting is the most levels of values.
const unpackNesting = 1000

func (u *unpacker) value(depth int) glua.LValue {
	u.st.meter.work(u.l, 1)
	if depth > unpackNesting {
		u.l.RaiseError("Bad data format in input.")
	}
	c := u.take(1)[0]
	switch {
	case c < 0x80 || c >= 0xe0:
		return glua.LNumber(int8(c))
	case c < 0x90:
		return u.dictionary(int(c&15), depth)
	case c < 0xa0:
		return u.array(int(c&15), depth)
	case c < 0xc0:
		return glua.LString(u.take(int(c & 31)))
	}
	switch c {
	case 0xc0:
		return glua.LNil
	case 0xc2, 0xc3:
		return glua.LBool(c == 0xc3)
	case 0xc4, 0xc5, 0xc6:
		return glua.LString(u.take(int(u.unsigned(1 << (c - 0xc4)))))
	case 0xca:
		return glua.LNumber(math.Float32frombits(uint32(u.unsigned(4))))
	case 0xcb:
		return glua.LNumber(math.Float64frombits(u.unsigned(8)))
	case 0xcc, 0xcd, 0xce, 0xcf:
		return glua.LNumber(u.unsigned(1 << (c - 0xcc)))
	case 0xd0:
		return glua.LNumber(int8(u.unsigned(1)))
	case 0xd1:
		return glua.LNumber(int16(u.unsigned(2)))
	case 0xd2:
		return glua.LNumber(int32(u.unsigned(4)))
	case 0xd3:
		return glua.LNumber(int64(u.unsigned(8)))
	case 0xd9, 0xda, 0xdb:
		return glua.LString(u.take(int(u.unsigned(1 << (c - 0xd9)))))
	case 0xdc, 0xdd:
		return u.array(int(u.unsigned(2<<(c-0xdc))), depth)
	case 0xde, 0xdf:
		return u.dictionary(int(u.unsigned(2<<(c-0xde))), depth)
	}
	u.l.RaiseError("Bad data format in input.")
	return nil
}

func (u *unpacker) array(n, depth int) glua.LValue {
	t := u.st.NewTable(0, 0)
	for i := 1; i <= n; i++ {
		t.RawSetInt(i, u.value(depth+1))
		u.st.meter.spend(stepBytes)
	}
	return t
}

func (u *unpacker) dictionary(n, depth int) glua.LValue {
	t := u.st.NewTable(0, 0)
	for range n {
		k := u.value(depth + 1)
		v := u.value(depth + 1)
		if f, ok := k.(glua.LNumber); k == glua.LNil || ok && math.IsNaN(float64(f)) {
			u.l.RaiseError("table index is %s", display(k))
		}
		u.st.chargeGap(u.l, t, k)
		t.RawSet(k, v)
		u.st.meter.spend(2 * stepBytes)
	}
	return t
}
