package latency

import (
	"testing"
	"time"
)

// Every time is in the class that ends behind it and after the one before, and the
// middle of that is within an eighth of it.
func TestClasses(t *testing.T) {
	for d := time.Duration(4); d < 1<<most; d += max(1, d/37) {
		c := ClassOf(d)
		if c < 0 || c >= Classes || End(c) <= d || c > 0 && End(c-1) > d {
			t.Fatalf("%v is in class %d, which ends at %v", d, c, End(c))
		}
		if off := Middle(c) - d; max(off, -off)*8 > d {
			t.Fatalf("%v is taken for %v", d, Middle(c))
		}
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 4: 0, 1 << 62: Classes - 1} {
		if c := ClassOf(d); c != want {
			t.Errorf("%v is in class %d, want %d", d, c, want)
		}
	}
}
