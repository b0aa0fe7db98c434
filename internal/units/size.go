// Package units parses and formats sizes in bytes, for flags and reports.
package units

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Size is a number of bytes. As a flag it is written as 4096, 64KiB or 1.5GiB. KB, MB, GB, TB
// and K, M, G, T mean the same powers of 1024 (A63).
type Size int64

var suffixes = []struct {
	name string
	unit int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseSize parses a size, written as for Size.
func ParseSize(s string) (Size, error) {
	text := strings.TrimSpace(s)
	number := strings.TrimRightFunc(text, unicode.IsLetter)
	unit, ok := unitOf(text[len(number):])
	if !ok {
		return 0, fmt.Errorf("size %q: unknown unit %q", s, text[len(number):])
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	// NaN fails this comparison.
	if err != nil || !(v >= 0 && v*float64(unit) < 1<<62) {
		return 0, fmt.Errorf("size %q: want a number of bytes such as 4096, 64KiB or 1.5GiB", s)
	}
	return Size(v * float64(unit)), nil
}

// ParseSizes parses a list of sizes, in bytes.
func ParseSizes(texts []string) ([]int, error) {
	sizes := make([]int, len(texts))
	for i, s := range texts {
		size, err := ParseSize(s)
		if err != nil {
			return nil, err
		}
		sizes[i] = int(size)
	}
	return sizes, nil
}

func unitOf(suffix string) (int64, bool) {
	suffix = strings.ToUpper(suffix)
	for _, u := range suffixes {
		if letter := u.name[:1]; suffix == letter || suffix == letter+"B" || suffix == letter+"IB" {
			return u.unit, true
		}
	}
	return 1, suffix == "" || suffix == "B"
}

// String formats the size with up to two decimals in the largest unit that is not larger than
// it: 1.5GiB, 64KiB, 100B.
func (s Size) String() string {
	for _, u := range suffixes {
		if int64(s) >= u.unit {
			return strconv.FormatFloat(float64(int64(float64(s)/float64(u.unit)*100+0.5))/100, 'f', -1, 64) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Set implements a flag's value.
func (s *Size) Set(text string) error {
	v, err := ParseSize(text)
	if err == nil {
		*s = v
	}
	return err
}

// Type returns the flag's type in usage texts.
func (*Size) Type() string { return "size" }
