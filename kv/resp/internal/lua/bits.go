package lua

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// The library bit: operations on numbers of 32 bits.

var bitFunctions = functions{
	"tobit":   func(l *glua.LState) int { return pushBits(l, checkBits(l, 1)) },
	"bnot":    func(l *glua.LState) int { return pushBits(l, ^checkBits(l, 1)) },
	"bswap":   func(l *glua.LState) int { return pushBits(l, bits.ReverseBytes32(checkBits(l, 1))) },
	"band":    combine(func(a, b uint32) uint32 { return a & b }),
	"bor":     combine(func(a, b uint32) uint32 { return a | b }),
	"bxor":    combine(func(a, b uint32) uint32 { return a ^ b }),
	"lshift":  shift(func(a uint32, n int) uint32 { return a << n }),
	"rshift":  shift(func(a uint32, n int) uint32 { return a >> n }),
	"arshift": shift(func(a uint32, n int) uint32 { return uint32(int32(a) >> n) }),
	"rol":     shift(bits.RotateLeft32),
	"ror":     shift(func(a uint32, n int) uint32 { return bits.RotateLeft32(a, -n) }),
	"tohex":   toHex,
}

// checkBits rounds an argument to an integer, and returns its low 32 bits.
func checkBits(l *glua.LState, n int) uint32 {
	f := math.RoundToEven(checkNumber(l, n))
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return uint32(int64(math.Mod(f, 1<<32)))
}

func pushBits(l *glua.LState, n uint32) int {
	l.Push(glua.LNumber(int32(n)))
	return 1
}

func combine(by func(a, b uint32) uint32) glua.LGFunction {
	return func(l *glua.LState) int {
		n := checkBits(l, 1)
		for i := 2; i <= l.GetTop(); i++ {
			n = by(n, checkBits(l, i))
		}
		return pushBits(l, n)
	}
}

func shift(by func(a uint32, n int) uint32) glua.LGFunction {
	return func(l *glua.LState) int {
		return pushBits(l, by(checkBits(l, 1), int(checkBits(l, 2)&31)))
	}
}

func toHex(l *glua.LState) int {
	n, digits := checkBits(l, 1), 8
	if l.GetTop() > 1 {
		digits = int(int32(checkBits(l, 2)))
	}
	upper := digits < 0
	if upper {
		digits = -digits
	}
	digits = min(max(digits, 0), 8)
	text := fmt.Sprintf("%08x", n)[8-digits:]
	if upper {
		text = strings.ToUpper(text)
	}
	l.Push(glua.LString(text))
	return 1
}
