package resp

import "math"

// parseInt reads a number as Redis does: decimal, in one way of writing only,
// without a plus sign, leading zeros or blanks.
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

// addInt is a + b, unless that overflows.
func addInt(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (sum > a) == (b > 0)
}
