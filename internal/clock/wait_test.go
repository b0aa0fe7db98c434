package clock

import (
	"testing"
	"time"
)

// Callers that fail at the same time do not retry at the same time.
func TestJitter(t *testing.T) {
	for pause := time.Millisecond; pause <= time.Minute; pause *= 2 {
		var parts [4]int
		for range 1000 {
			d := Jitter(pause)
			if d < pause/2 || d >= pause {
				t.Fatalf("a pause of %v became %v", pause, d)
			}
			parts[(d-pause/2)*4/(pause/2)]++
		}
		for i, n := range parts {
			if n < 100 { // of 250: that is ten deviations away
				t.Errorf("%d of 1000 come back in part %d of a pause of %v", n, i, pause)
			}
		}
	}
}
