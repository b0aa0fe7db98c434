package resp

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"strconv"
)

// parseInt parses a decimal number as Redis does: no plus sign, leading zeros or blanks.
func parseInt(b []byte) (v int64, ok bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var u uint64 // 19 digits fit
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		u = u*10 + uint64(d-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case !negative && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// addInt returns a + b; ok is false if that overflows.
func addInt(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (sum > a) == (b > 0)
}

// Redis calculates in C's long double, which has 64 bits of mantissa on x86, and prints 17
// decimal places.
const (
	floatBits   = 64
	floatPlaces = 17
	floatDigits = 5 << 10 // inputs must be shorter than this
	floatMost   = 4932    // largest decimal exponent
)

// parseFloat parses a number as C does.
func parseFloat(b []byte) (f *big.Float, ok bool) {
	if len(b) == 0 || len(b) >= floatDigits {
		return nil, false
	}
	b = bytes.ToLower(b)
	unsigned := bytes.TrimLeft(b, "+-")
	if len(b)-len(unsigned) > 1 {
		return nil, false
	}
	base := 10
	if string(unsigned) == "inf" || string(unsigned) == "infinity" {
		return new(big.Float).SetInf(b[0] == '-'), true
	}
	var zero bool
	if digits, hex := bytes.CutPrefix(unsigned, []byte("0x")); hex {
		base = 0
		ok, zero = floatLike(digits, "p", "0123456789abcdef")
	} else {
		ok, zero = floatLike(unsigned, "e", "0123456789")
	}
	switch {
	case !ok:
		return nil, false
	case zero: // with any exponent
		f = new(big.Float).SetPrec(floatBits)
		if b[0] == '-' {
			f.Neg(f)
		}
		return f, true
	}
	f, _, err := big.ParseFloat(string(b), base, floatBits, big.ToNearestEven)
	if err != nil {
		return nil, false
	}
	if f.Sign() != 0 && abs(f.MantExp(nil)) > floatMost*10/3 {
		return nil, false // approximately C's range
	}
	return f, true
}

func abs(n int) int { return max(n, -n) }

// floatLike reports whether b is a number in these digits, with an optional decimal exponent
// after letter. A number other than zero whose exponent would make parsing slow is refused.
func floatLike(b []byte, letter, digits string) (ok, zero bool) {
	mantissa, exponent, has := bytes.Cut(b, []byte(letter))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	if len(whole)+len(fraction) == 0 || !allIn(whole, digits) || !allIn(fraction, digits) {
		return false, false
	}
	zero = allIn(whole, "0") && allIn(fraction, "0")
	if !has {
		return true, zero
	}
	unsigned := bytes.TrimLeft(exponent, "+-")
	if len(exponent)-len(unsigned) > 1 || len(unsigned) == 0 || !allIn(unsigned, "0123456789") {
		return false, false
	}
	n, err := strconv.Atoi(string(unsigned))
	return zero || err == nil && n <= 4*floatMost, zero
}

// allIn reports whether b consists of these characters only.
func allIn(b []byte, of string) bool { return len(bytes.Trim(b, of)) == 0 }

// addFloats appends the sum of a and b to dst. Unless found, a counts as 0. err is the error
// reply, or empty; it is bad if a is not a number.
func addFloats(dst, a []byte, found bool, b []byte, bad string) (sum []byte, err string) {
	x, ok := new(big.Float).SetPrec(floatBits), true
	if found {
		x, ok = parseFloat(a)
	}
	y, okY := parseFloat(b)
	switch {
	case !ok:
		return dst, bad
	case !okY:
		return dst, errNotFloat
	case x.IsInf() || y.IsInf():
		return dst, errInfinity
	}
	x.Add(x, y)
	return appendFloat(dst, x), ""
}

// appendFloat appends f without an exponent and without trailing zeros.
func appendFloat(dst []byte, f *big.Float) []byte {
	at := len(dst)
	dst = f.Append(dst, 'f', floatPlaces)
	if bytes.IndexByte(dst[at:], '.') >= 0 {
		dst = bytes.TrimRight(dst, "0")
		dst = bytes.TrimSuffix(dst, []byte("."))
	}
	if string(dst[at:]) == "-0" {
		dst = append(dst[:at], '0')
	}
	return dst
}

// parseScore parses a number as C's strtod does, but for blanks around it. NaN and numbers out of
// range are refused.
func parseScore(b []byte) (f float64, ok bool) {
	f, ok = parseBound(b)
	if !ok || len(b) == 0 || isBlank(b[0]) || math.IsInf(f, 0) && bytes.ContainsAny(b, "0123456789") {
		return 0, false
	}
	return f, f != 0 || isZero(b)
}

// isZero reports whether a number that was parsed as 0 is 0, and not one that is too small.
func isZero(b []byte) bool {
	digits, exponent := bytes.ToLower(bytes.TrimLeft(b, " \t\n\v\f\r+-")), "e"
	if hex, isHex := bytes.CutPrefix(digits, []byte("0x")); isHex {
		digits, exponent = hex, "p"
	}
	mantissa, _, _ := bytes.Cut(digits, []byte(exponent))
	return !bytes.ContainsAny(mantissa, "123456789abcdef")
}

// parseBound parses a number as C's strtod does: blanks before it are ignored, nothing is 0, and a
// number that is too large is infinite. NaN is refused.
func parseBound(b []byte) (f float64, ok bool) {
	if n, ok := parseInt(b); ok {
		return float64(n), true
	}
	if len(b) == 0 {
		return 0, true
	}
	text := bytes.TrimLeft(b, " \t\n\v\f\r")
	if len(text) == 0 || bytes.IndexByte(text, '_') >= 0 {
		return 0, false
	}
	unsigned := bytes.TrimLeft(text, "+-")
	if len(text)-len(unsigned) > 1 {
		return 0, false
	}
	number := string(text)
	if len(unsigned) > 2 && unsigned[0] == '0' && unsigned[1]|0x20 == 'x' && !bytes.ContainsAny(unsigned, "pP") {
		number += "p0" // Go wants an exponent
	}
	f, err := strconv.ParseFloat(number, 64)
	return f, (err == nil || errors.Is(err, strconv.ErrRange)) && !math.IsNaN(f)
}

// appendScore appends a number in C's format %.17g.
func appendScore(dst []byte, f float64) []byte {
	const exact = 1e15 // integers below it are printed as they are
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case f == math.Trunc(f) && math.Abs(f) < exact && (f != 0 || !math.Signbit(f)):
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', 17, 64)
}
