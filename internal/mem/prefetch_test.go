package mem

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

func TestPrefetchingDoesNotFault(t *testing.T) {
	var word uint64
	Prefetch(unsafe.Pointer(&word))
	Prefetch(nil)
	for _, n := range []int{-1, 0, 1, 64, 1 << 16} {
		PrefetchLines(unsafe.Pointer(&word), n)
		PrefetchLines(nil, n)
	}
}

// BenchmarkRandomLines loads random cache lines from memory larger than all caches, with and
// without prefetching 16 loads ahead.
func BenchmarkRandomLines(b *testing.B) {
	const ahead = 16
	lines := make([][8]uint64, 1<<22) // 256 MiB
	for i := range lines {
		lines[i][0] = uint64(i)
	}
	order := make([]uint32, 1<<20)
	for i := range order {
		order[i] = rand.Uint32N(uint32(len(lines)))
	}
	for name, prefetched := range map[string]bool{"prefetch=no": false, "prefetch=yes": true} {
		b.Run(name, func(b *testing.B) {
			sum := uint64(0)
			for i := 0; b.Loop(); i++ {
				if prefetched {
					Prefetch(unsafe.Pointer(&lines[order[(i+ahead)%len(order)]]))
				}
				sum += lines[order[i%len(order)]][0]
			}
			if sum == 0 {
				b.Error("nothing was loaded")
			}
		})
	}
}
