package core

import (
	"math"
	"testing"
)

// TestTouchStaysInside touches whatever a peer may request. The runtime's checks would find an
// access outside the memory.
func TestTouchStaysInside(t *testing.T) {
	b := make([]byte, 200)
	for _, offset := range []int64{0, 63, 64, 199, 200, 201, -1, math.MinInt64, math.MaxInt64} {
		for _, n := range []int{0, 1, 64, 65, 128, 4096, MaxLength} {
			Touch(b, offset, n)
			Touch(nil, offset, n)
		}
	}
}
