package ssdtier

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/redykv/redykv/device"
)

// buffer is block-aligned memory for the blocks around a read.
type buffer struct{ bytes []byte }

// bufferPool keeps buffers for reads too large for a slot's own, by the
// logarithm of their size.
type bufferPool struct {
	bySize [bits.UintSize]sync.Pool
}

func (p *bufferPool) get(n, align int) *buffer {
	class := bits.Len(uint(n - 1))
	if b, ok := p.bySize[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{device.AlignedBuffer(1<<class, align)}
}

func (p *bufferPool) put(b *buffer) {
	p.bySize[bits.Len(uint(len(b.bytes)-1))].Put(b)
}

// aligned says whether direct I/O can use b as it is.
func aligned(b []byte, addr int64, block int) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return (uint64(at)|uint64(len(b))|uint64(addr))&uint64(block-1) == 0
}
