package store

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
)

const (
	lineWords = 8 // a cache line of 64 bytes
	// ahead is the number of passes between prefetching a line and loading it. More gain
	// nothing: the processor has fewer outstanding loads.
	ahead = 16
	// copyAhead is the same for copies. Only the first lines of a value are prefetched:
	// the processor's own prefetcher finds the others, and prefetching more is slower.
	// Copying 1 KiB took 170 ns without prefetching, 115 with two lines, 170 with eight,
	// 230 with all.
	copyAhead = 4
	copyLines = 2
	// copyFrom is the least size of values for which copying is measured.
	copyFrom = 64
)

// yardstick is one thread's view of the memory that is measured in place of the store's,
// with the positions that it has prefetched.
type yardstick struct {
	memory []uint64
	value  []uint64          // what copies go to
	pairs  [ahead][2]uint64  // of lines
	places [copyAhead]uint64 // of copies
	at     uint              // passes so far
	sum    uint64            // uses the loads, so that they are not optimized away
}

// newYardstickMemory returns that many bytes, rounded to whole lines, with all pages
// touched.
func newYardstickMemory(size int64, progress bench.Progress) ([]byte, []uint64, error) {
	size = max(size&^(8*lineWords-1), 8*lineWords)
	memory, err := mem.Alloc(int(size))
	if err != nil {
		return nil, nil, fmt.Errorf("storebench: yardstick: %w", err)
	}
	progress.Begin("yardstick", size)
	// Alloc's memory is aligned to pages, and its length is whole words.
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), size/8)
	const page = 4096 / 8
	for i := 0; i < len(words); i += page {
		words[i] = uint64(i)
		if i%(page<<12) == 0 {
			progress.Add(min(int64(page<<12), int64(len(words)-i)) * 8)
		}
	}
	progress.End()
	return memory, words, nil
}

// Odd multipliers that make a record's two positions independent of each other.
const firstPlace, secondPlace = 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f

// place spreads record numbers over n places.
func place(number uint32, factor, n uint64) uint64 {
	hi, _ := bits.Mul64(uint64(number+1)*factor, n)
	return hi
}

// lines prefetches two lines for each number and loads those of sixteen numbers
// before.
func (w *worker) lines(_ kinds, numbers []uint32) error {
	y := &w.yard
	memory, count := y.memory, uint64(len(y.memory)/lineWords)
	sum, at := y.sum, y.at
	for _, n := range numbers {
		a, b := place(n, firstPlace, count)*lineWords, place(n, secondPlace, count)*lineWords
		mem.Prefetch(unsafe.Pointer(&memory[a]))
		mem.Prefetch(unsafe.Pointer(&memory[b]))
		p := &y.pairs[at%ahead]
		sum += memory[p[0]] + memory[p[1]]
		p[0], p[1] = a, b
		at++
	}
	y.sum, y.at = sum, at
	return nil
}

// copies copies as many words as a value has from one place for each number; the
// place's first lines were prefetched four numbers before.
func (w *worker) copies(_ kinds, numbers []uint32) error {
	y := &w.yard
	size := len(y.value)
	memory, count := y.memory, uint64(len(y.memory)/size)
	for _, n := range numbers {
		a := place(n, firstPlace, count) * uint64(size)
		for line := 0; line < min(size, copyLines*lineWords); line += lineWords {
			mem.Prefetch(unsafe.Pointer(&memory[a+uint64(line)]))
		}
		p := &y.places[y.at%copyAhead]
		copy(y.value, memory[*p:*p+uint64(size)])
		*p = a
		y.at++
	}
	return nil
}
