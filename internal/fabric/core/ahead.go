package core

import (
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// Ahead is how many operations before its turn an operation's memory is asked for.
// A batch of small operations waits for lines of memory that no cache holds: this
// many at once instead of one after the other. More gained nothing.
const Ahead = 16

// line is the size of what a processor loads at a time.
const line = 64

// Touch asks for the first lines of the n bytes at offset of b, if they are inside.
// The processor finds the next ones by itself.
func Touch(b []byte, offset int64, n int) {
	if uint64(offset) >= uint64(len(b)) {
		return
	}
	p := unsafe.Pointer(&b[offset])
	mem.Prefetch(p)
	if last := min(offset+int64(n), int64(len(b))) - 1; last&^(line-1) > offset {
		mem.Prefetch(unsafe.Pointer(&b[min(offset+line, last)]))
	}
}
