package core

import (
	"math"
	"testing"
)

// TestTouchStaysInside touches what a peer may ask for: nothing outside is looked
// at, as the runtime's checks would find.
func TestTouchStaysInside(t *testing.T) {
	b := make([]byte, 200)
	for _, offset := range []int64{0, 63, 64, 199, 200, 201, -1, math.MinInt64, math.MaxInt64} {
		for _, n := range []int{0, 1, 64, 65, 128, 4096, MaxLength} {
			Touch(b, offset, n)
			Touch(nil, offset, n)
		}
	}
}
