package server

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// Whatever grants take, return and become, each has its part, and no bytes are lost or invented.
func TestRingsAreShared(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		const cores = 8
		memory := rapid.Int64Range(0, 10_000).Draw(t, "memory")
		r := newRings(memory, cores)
		var grants [4]ringUse
		var taken [4][]int64
		free, shrunk := cores, false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, 3).Draw(t, "grant")
			u := &grants[i]
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				threads := rapid.IntRange(0, free+u.threads).Draw(t, "threads")
				shrunk = shrunk || threads < u.threads
				free += u.threads - threads
				r.divide(u, threads)
			case 1:
				if n := len(taken[i]); n > 0 {
					r.give(u, taken[i][n-1])
					taken[i] = taken[i][:n-1]
				}
			default:
				n := rapid.Int64Range(1, 3000).Draw(t, "bytes")
				sure := u.own+n <= r.part(u)
				if r.take(u, n) {
					taken[i] = append(taken[i], n)
				} else if sure {
					t.Fatalf("%+v gets no %d bytes of its part, %d", u, n, r.part(u))
				}
			}
			sum, own, common := int64(0), int64(0), int64(0)
			for i := range grants {
				own, common = own+grants[i].own, common+grants[i].common
				if grants[i].own > r.part(&grants[i]) || grants[i].own < 0 || grants[i].common < 0 {
					t.Fatalf("%+v, part %d", grants[i], r.part(&grants[i]))
				}
				for _, n := range taken[i] {
					sum += n
				}
			}
			if sum != own+common || sum != r.inUse() || r.common+common != memory-r.half {
				t.Fatalf("%d bytes are taken; grants have %d and %d, %d are left in common", sum, own, common, r.common)
			}
			if sum > memory && !shrunk {
				t.Fatalf("%d of %d bytes are taken", sum, memory)
			}
		}
	})
}
