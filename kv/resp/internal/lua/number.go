package lua

import (
	"math"
	"strconv"

	glua "github.com/yuin/gopher-lua"
)

// AppendNumber appends a number as C's "%.<digits>g" prints it.
func AppendNumber(out []byte, f float64, digits int) []byte {
	switch {
	case f == math.Trunc(f) && math.Abs(f) < 1e14 && (f != 0 || !math.Signbit(f)):
		return strconv.AppendInt(out, int64(f), 10)
	case math.IsNaN(f) && math.Signbit(f):
		return append(out, "-nan"...)
	case math.IsNaN(f):
		return append(out, "nan"...)
	case math.IsInf(f, 1):
		return append(out, "inf"...)
	case math.IsInf(f, -1):
		return append(out, "-inf"...)
	}
	return strconv.AppendFloat(out, f, 'g', digits, 64)
}

// shownDigits are the significant digits of a number that becomes a string.
const shownDigits = 14

func numberString(n glua.LNumber) string {
	var buf [32]byte
	return string(AppendNumber(buf[:0], float64(n), shownDigits))
}

// toInt converts a number as C converts it to a 64-bit integer.
func toInt(f float64) int64 {
	if !(f >= -1<<63 && f < 1<<63) {
		return math.MinInt64
	}
	return int64(f)
}

// str returns the string that a value is or, for a number, becomes.
func str(v glua.LValue) (s string, ok bool) {
	switch v := v.(type) {
	case glua.LString:
		return string(v), true
	case glua.LNumber:
		return numberString(v), true
	}
	return "", false
}

// num returns the number that a value is or stands for.
func num(v glua.LValue) (n float64, ok bool) {
	switch v := v.(type) {
	case glua.LNumber:
		return float64(v), true
	case glua.LString:
		return parseNumber(string(v))
	}
	return 0, false
}

// Arguments of functions. They raise Lua's errors.

func badArgument(l *glua.LState, n int, why string) {
	l.RaiseError("bad argument #%d to '%s' (%s)", n, callee(l), why)
}

// callee returns the name of the running function.
func callee(l *glua.LState) string {
	if fn, ok := l.Get(glua.UpvalueIndex(1)).(glua.LString); ok {
		return string(fn)
	}
	return "?"
}

func wrongType(l *glua.LState, n int, want string) {
	got := "no value"
	if n <= l.GetTop() {
		got = l.Get(n).Type().String()
	}
	badArgument(l, n, want+" expected, got "+got)
}

func checkString(l *glua.LState, n int) string {
	s, ok := str(l.Get(n))
	if !ok {
		wrongType(l, n, "string")
	}
	return s
}

func optString(l *glua.LState, n int, otherwise string) string {
	if l.Get(n) == glua.LNil {
		return otherwise
	}
	return checkString(l, n)
}

func checkNumber(l *glua.LState, n int) float64 {
	f, ok := num(l.Get(n))
	if !ok {
		wrongType(l, n, "number")
	}
	return f
}

func checkInt(l *glua.LState, n int) int { return int(toInt(checkNumber(l, n))) }

func optInt(l *glua.LState, n, otherwise int) int {
	if l.Get(n) == glua.LNil {
		return otherwise
	}
	return checkInt(l, n)
}

func checkTable(l *glua.LState, n int) *glua.LTable {
	t, ok := l.Get(n).(*glua.LTable)
	if !ok {
		wrongType(l, n, "table")
	}
	return t
}

func checkFunction(l *glua.LState, n int) *glua.LFunction {
	f, ok := l.Get(n).(*glua.LFunction)
	if !ok {
		wrongType(l, n, "function")
	}
	return f
}

func checkAny(l *glua.LState, n int) glua.LValue {
	if n > l.GetTop() {
		badArgument(l, n, "value expected")
	}
	return l.Get(n)
}
