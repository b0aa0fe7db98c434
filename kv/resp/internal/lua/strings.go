package lua

import (
	"strings"

	glua "github.com/yuin/gopher-lua"
)

func (st *State) stringFunctions() functions {
	return functions{
		"byte": st.stringByte, "char": st.stringChar, "dump": st.stringDump, "find": st.stringFind, "format": st.stringFormat,
		"gfind": st.stringGmatch, "gmatch": st.stringGmatch, "gsub": st.stringGsub, "len": st.stringLen,
		"lower": st.stringLower, "match": st.stringMatch, "rep": st.stringRep, "reverse": st.stringReverse,
		"sub": st.stringSub, "upper": st.stringUpper,
	}
}

// bounds returns the part of a string of n bytes from the i-th to the j-th, which count from the
// end if they are negative.
func bounds(n, i, j int) (from, to int) {
	if i < 0 {
		i = max(n+i+1, 1)
	}
	if j < 0 {
		j = n + j + 1
	}
	i, j = max(i, 1), min(j, n)
	if i > j {
		return 0, 0
	}
	return i - 1, j
}

func (st *State) stringByte(l *glua.LState) int {
	s := checkString(l, 1)
	i := optInt(l, 2, 1)
	from, to := bounds(len(s), i, optInt(l, 3, i))
	if to-from > maxResults {
		l.RaiseError("string slice too long")
	}
	for _, c := range []byte(s[from:to]) {
		l.Push(glua.LNumber(c))
	}
	return to - from
}

func (st *State) stringChar(l *glua.LState) int {
	out := make([]byte, l.GetTop())
	for i := range out {
		n := checkInt(l, i+1)
		if n < 0 || n > 255 {
			badArgument(l, i+1, "invalid value")
		}
		out[i] = byte(n)
	}
	st.meter.Charge(l, len(out))
	l.Push(glua.LString(out))
	return 1
}

func (st *State) stringDump(l *glua.LState) int {
	l.RaiseError("unable to dump given function")
	return 0
}

func (st *State) stringLen(l *glua.LState) int {
	l.Push(glua.LNumber(len(checkString(l, 1))))
	return 1
}

// changed returns the result of a function that changes each character of the first argument.
func (st *State) changed(l *glua.LState, change func(out []byte)) int {
	s := checkString(l, 1)
	st.meter.Charge(l, len(s))
	out := []byte(s)
	change(out)
	l.Push(glua.LString(out))
	return 1
}

func (st *State) stringLower(l *glua.LState) int {
	return st.changed(l, func(out []byte) {
		for i, c := range out {
			if c >= 'A' && c <= 'Z' {
				out[i] |= 0x20
			}
		}
	})
}

func (st *State) stringUpper(l *glua.LState) int {
	return st.changed(l, func(out []byte) {
		for i, c := range out {
			if c >= 'a' && c <= 'z' {
				out[i] &^= 0x20
			}
		}
	})
}

func (st *State) stringReverse(l *glua.LState) int {
	return st.changed(l, func(out []byte) {
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	})
}

func (st *State) stringRep(l *glua.LState) int {
	s, n := checkString(l, 1), checkInt(l, 2)
	if n <= 0 || s == "" {
		l.Push(glua.LString(""))
		return 1
	}
	if n > MaxString/len(s) {
		l.RaiseError("%s", errString.Error())
	}
	st.meter.Charge(l, n*len(s))
	l.Push(glua.LString(strings.Repeat(s, n)))
	return 1
}

func (st *State) stringSub(l *glua.LState) int {
	s := checkString(l, 1)
	from, to := bounds(len(s), checkInt(l, 2), optInt(l, 3, -1))
	l.Push(glua.LString(s[from:to]))
	return 1
}

// concat is the operator .. for all of its arguments.
func (st *State) concat(l *glua.LState) int {
	n := l.GetTop()
	size := 0
	for i := 1; i <= n; i++ {
		switch v := l.Get(i).(type) {
		case glua.LString:
			size += len(v)
		case glua.LNumber:
			size += 32
		default:
			return st.concatSlowly(l)
		}
		if size > MaxString { // an operand many times
			break
		}
	}
	st.meter.Charge(l, size)
	out := make([]byte, 0, size)
	for i := 1; i <= n; i++ {
		switch v := l.Get(i).(type) {
		case glua.LString:
			out = append(out, v...)
		case glua.LNumber:
			out = AppendNumber(out, float64(v), shownDigits)
		}
	}
	l.Push(glua.LString(out))
	return 1
}

// concatSlowly is concat with metamethods, from right to left.
func (st *State) concatSlowly(l *glua.LState) int {
	right := l.Get(l.GetTop())
	for i := l.GetTop() - 1; i > 0; i-- {
		left := l.Get(i)
		a, okLeft := str(left)
		b, okRight := str(right)
		if okLeft && okRight {
			st.meter.Charge(l, len(a)+len(b))
			right = glua.LString(a + b)
			continue
		}
		method := l.GetMetaField(left, "__concat")
		if method == glua.LNil {
			method = l.GetMetaField(right, "__concat")
		}
		if method == glua.LNil {
			if okLeft {
				left = right
			}
			l.RaiseError("attempt to concatenate a %s value", left.Type().String())
		}
		l.Push(method)
		l.Push(left)
		l.Push(right)
		l.Call(2, 1)
		right = l.Get(-1)
		l.Pop(1)
	}
	l.Push(right)
	return 1
}
