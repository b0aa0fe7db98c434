package lua

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// The library struct: binary layouts of C.

// structFormat reads a format.
type structFormat struct {
	l     *glua.LState
	rest  string
	order binary.ByteOrder
	align int // the largest alignment
}

const (
	structAlign   = 8  // alignment of "!" alone
	structInteger = 32 // most bytes of an integer
)

func (st *State) structFunctions() functions {
	return functions{"pack": st.structPack, "unpack": st.structUnpack, "size": st.structSize}
}

func newStructFormat(l *glua.LState) *structFormat {
	return &structFormat{l: l, rest: checkString(l, 1), order: binary.LittleEndian, align: 1}
}

// number reads the number at the beginning of the rest.
func (f *structFormat) number(otherwise int) int {
	n, digits := 0, 0
	for f.rest != "" && f.rest[0] >= '0' && f.rest[0] <= '9' {
		if n > MaxString {
			f.l.RaiseError("integral size overflow")
		}
		n, f.rest, digits = n*10+int(f.rest[0]-'0'), f.rest[1:], digits+1
	}
	if digits == 0 {
		return otherwise
	}
	return n
}

// item is an element of a format: its option and size, and the padding before it at a place.
type item struct {
	option byte
	size   int
}

// next returns the next element. Options without one are applied.
func (f *structFormat) next() (it item, ok bool) {
	for f.rest != "" {
		it = item{option: f.rest[0]}
		f.rest = f.rest[1:]
		switch it.option {
		case 'b', 'B', 'x':
			it.size = 1
		case 'h', 'H':
			it.size = 2
		case 'l', 'L', 'T', 'd':
			it.size = 8
		case 'f':
			it.size = 4
		case 'c':
			it.size = f.number(1)
		case 'i', 'I':
			if it.size = f.number(4); it.size > structInteger {
				f.l.RaiseError("integral size %d is larger than limit of %d", it.size, structInteger)
			}
		case 's':
		case ' ':
			continue
		case '<':
			f.order = binary.LittleEndian
			continue
		case '>':
			f.order = binary.BigEndian
			continue
		case '!':
			f.align = f.number(structAlign)
			if f.align == 0 || f.align&(f.align-1) != 0 {
				f.l.RaiseError("alignment %d is not a power of 2", f.align)
			}
			continue
		default:
			badArgument(f.l, 1, fmt.Sprintf("invalid format option '%c'", it.option))
		}
		return it, true
	}
	return item{}, false
}

// padding returns the bytes before an element at an offset.
func (f *structFormat) padding(at int, it item) int {
	if it.size == 0 || strings.IndexByte("cxs", it.option) >= 0 {
		return 0
	}
	align := min(it.size, f.align)
	if align <= 1 {
		return 0
	}
	return (align - at&(align-1)) & (align - 1)
}

func (st *State) structPack(l *glua.LState) int {
	f := newStructFormat(l)
	var out []byte
	arg := 1
	// A missing argument is nil.
	number := func() float64 {
		n, ok := num(l.Get(arg))
		if !ok {
			badArgument(l, arg, "number expected, got "+l.Get(arg).Type().String())
		}
		return n
	}
	for it, ok := f.next(); ok; it, ok = f.next() {
		out = append(out, make([]byte, f.padding(len(out), it))...)
		if it.option != 'x' {
			arg++
		}
		switch it.option {
		case 'x':
			out = append(out, 0)
		case 'f':
			out = f.order.(binary.AppendByteOrder).AppendUint32(out, math.Float32bits(float32(number())))
		case 'd':
			out = f.order.(binary.AppendByteOrder).AppendUint64(out, math.Float64bits(number()))
		case 's', 'c':
			s := checkString(l, arg)
			if it.size == 0 {
				it.size = len(s)
			}
			if len(s) < it.size {
				badArgument(l, arg+1, "string too short")
			}
			st.meter.Charge(l, it.size)
			out = append(out, s[:it.size]...)
			if it.option == 's' {
				out = append(out, 0)
			}
		default:
			out = f.appendInteger(out, it.size, number())
		}
		if len(out) > MaxString {
			l.RaiseError("%s", errString.Error())
		}
	}
	st.meter.Charge(l, len(out))
	l.Push(glua.LString(out))
	return 1
}

// appendInteger appends an integer of some bytes, of which those above the eighth are zero.
func (f *structFormat) appendInteger(out []byte, size int, n float64) []byte {
	v := uint64(toInt(n))
	if n >= 0 {
		v = asUnsigned(n)
	}
	from := len(out)
	out = append(out, make([]byte, size)...)
	for i := range min(size, 8) {
		at := from + i
		if f.order == binary.BigEndian {
			at = from + size - 1 - i
		}
		out[at] = byte(v >> (8 * i))
	}
	return out
}

func (st *State) structUnpack(l *glua.LState) int {
	f := newStructFormat(l)
	data, at := checkString(l, 2), optInt(l, 3, 1)-1
	if at < 0 {
		badArgument(l, 3, "offset must be 1 or greater")
	}
	results := 0
	for it, ok := f.next(); ok; it, ok = f.next() {
		at += f.padding(at, it)
		if at > len(data) || it.size > len(data)-at {
			badArgument(l, 2, "data string too short")
		}
		if results == maxResults {
			l.RaiseError("too many results")
		}
		var v glua.LValue
		switch it.option {
		case 'x':
			at++
			continue
		case 's':
			end := strings.IndexByte(data[at:], 0)
			if end < 0 {
				l.RaiseError("unfinished string in data")
			}
			v, it.size = glua.LString(data[at:at+end]), end+1
		case 'c':
			if it.size == 0 { // the number before is the size
				n, ok := l.Get(-1).(glua.LNumber)
				if !ok || results == 0 {
					l.RaiseError("format 'c0' needs a previous size")
				}
				l.Pop(1)
				results--
				if it.size = int(toInt(float64(n))); it.size < 0 || it.size > len(data)-at {
					badArgument(l, 2, "data string too short")
				}
			}
			v = glua.LString(data[at : at+it.size])
		case 'f':
			v = glua.LNumber(math.Float32frombits(f.order.Uint32([]byte(data[at : at+4]))))
		case 'd':
			v = glua.LNumber(math.Float64frombits(f.order.Uint64([]byte(data[at : at+8]))))
		default:
			v = glua.LNumber(f.integer(data[at:at+it.size], it.option >= 'a'))
		}
		at += it.size
		l.Push(v)
		results++
	}
	l.Push(glua.LNumber(at + 1))
	return results + 1
}

// integer returns the integer in data, of which the low eight bytes count.
func (f *structFormat) integer(data string, signed bool) float64 {
	v := uint64(0)
	for i := range len(data) {
		at := len(data) - 1 - i // from the highest byte
		if f.order == binary.BigEndian {
			at = i
		}
		v = v<<8 | uint64(data[at])
	}
	if !signed {
		return float64(v)
	}
	if n := len(data); n > 0 && n < 8 {
		unused := 64 - 8*n
		return float64(int64(v<<unused) >> unused)
	}
	return float64(int64(v))
}

func (st *State) structSize(l *glua.LState) int {
	f := newStructFormat(l)
	at := 0
	for it, ok := f.next(); ok; it, ok = f.next() {
		if it.option == 's' {
			badArgument(l, 1, "option 's' has no fixed size")
		}
		if it.option == 'c' && it.size == 0 {
			badArgument(l, 1, "option 'c0' has no fixed size")
		}
		at += f.padding(at, it) + it.size
	}
	l.Push(glua.LNumber(at))
	return 1
}
