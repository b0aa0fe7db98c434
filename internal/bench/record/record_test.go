package record

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// TestValuesAreTold checks that a value of another record, or with a changed byte, is
// detected.
func TestValuesAreTold(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 100).Draw(t, "size")
		n := rapid.Uint64Range(0, math.MaxUint32).Draw(t, "record")
		value := make([]byte, size)
		FillValue(value, n)
		if err := CheckValue(value, n, size); err != nil {
			t.Fatal(err)
		}
		if !EndsMatch(value, n, size) {
			t.Fatal("the ends do not match")
		}
		if CheckValue(value[:size-1], n, size) == nil || EndsMatch(value[:size-1], n, size) {
			t.Fatal("a value cut short passes")
		}
		at := rapid.IntRange(0, size-1).Draw(t, "at")
		value[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if CheckValue(value, n, size) == nil {
			t.Fatalf("a value wrong at byte %d passes", at)
		}
		inFirst, inLast := at < 8, at >= size/8*8-8 && at < size/8*8
		if (inFirst || inLast || size < 8) && EndsMatch(value, n, size) {
			t.Fatalf("the ends match, with byte %d wrong", at)
		}
	})
}

func TestZeroedMemoryIsNoValue(t *testing.T) {
	for _, size := range []int{8, 16, 100, 1024} {
		if EndsMatch(make([]byte, size), 0, size) {
			t.Errorf("%d zero bytes pass for record 0", size)
		}
	}
}

func TestKeyNumber(t *testing.T) {
	var key [KeySize]byte
	for _, n := range []uint64{0, 1, 255, 256, math.MaxUint32} {
		PutKey(key[:], n)
		if got := KeyNumber(key[:]); got != n {
			t.Errorf("key of record %d reads as %d", n, got)
		}
	}
}
