package ssdtier

import (
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/mem"
)

// buffer is block-aligned memory for the blocks around a read.
type buffer struct {
	bytes []byte
	slab  *slab // that the buffer is part of; nil: on the Go heap
}

// maxPiece is the largest buffer that is cut out of a slab.
const maxPiece = mem.HugePage / 2

// slab is a huge page divided into buffers of one size, each contiguous in physical memory.
type slab struct {
	memory []byte
	pieces int
	free   []*buffer
}

// newSlab makes a slab, or returns nil if there is no memory for it.
func newSlab(size int) *slab {
	memory, err := mem.Alloc(mem.HugePage)
	if err != nil {
		return nil // the heap may have memory
	}
	s := &slab{memory: memory, pieces: len(memory) / size}
	for i := range s.pieces {
		s.free = append(s.free, &buffer{bytes: memory[i*size:][:size:size], slab: s})
	}
	return s
}

// bufferPool keeps buffers for reads too large for an operation's own, by the
// logarithm of their size.
type bufferPool struct {
	large [bits.UintSize]sync.Pool // of *buffer, above maxPiece

	mu     sync.Mutex
	slabs  [bits.UintSize][]*slab // with a free buffer
	closed bool
}

func (p *bufferPool) get(n, align int) *buffer {
	class := bits.Len(uint(n - 1))
	if size := 1 << class; size <= maxPiece {
		if b := p.cut(class, size); b != nil {
			return b
		}
	} else if b, ok := p.large[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{bytes: device.AlignedBuffer(1<<class, align)}
}

// cut returns a part of a slab, or nil if there is no memory for one.
func (p *bufferPool) cut(class, size int) *buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	slabs := p.slabs[class]
	if len(slabs) == 0 {
		s := newSlab(size)
		if s == nil {
			return nil
		}
		slabs = append(slabs, s)
	}
	s := slabs[len(slabs)-1]
	b := s.free[len(s.free)-1]
	if s.free = s.free[:len(s.free)-1]; len(s.free) == 0 {
		slabs = slabs[:len(slabs)-1]
	}
	p.slabs[class] = slabs
	return b
}

func (p *bufferPool) put(b *buffer) {
	class := bits.Len(uint(len(b.bytes) - 1))
	switch {
	case b.slab != nil:
		p.giveBack(b, class)
	case len(b.bytes) > maxPiece:
		p.large[class].Put(b)
	}
}

// spareSlabs is the number of slabs of a size with free buffers above which a slab without a
// buffer in use is freed.
const spareSlabs = 4

// giveBack returns a buffer to its slab.
func (p *bufferPool) giveBack(b *buffer, class int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := b.slab
	if s.free = append(s.free, b); len(s.free) == 1 {
		p.slabs[class] = append(p.slabs[class], s)
	}
	if len(s.free) == s.pieces && (p.closed || len(p.slabs[class]) > spareSlabs) {
		p.drop(s, class)
	}
}

// drop frees a slab without a buffer in use.
func (p *bufferPool) drop(s *slab, class int) {
	p.slabs[class] = slices.DeleteFunc(p.slabs[class], func(other *slab) bool { return other == s })
	_ = mem.Free(s.memory) // cannot fail for memory of mem.Alloc
}

// close frees the slabs without a buffer in use, and the others when their buffers come back.
func (p *bufferPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for class, slabs := range p.slabs {
		for _, s := range slices.Clone(slabs) {
			if len(s.free) == s.pieces {
				p.drop(s, class)
			}
		}
	}
}

// aligned reports whether direct I/O can use b as it is.
func aligned(b []byte, addr int64, block int) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return (uint64(at)|uint64(len(b))|uint64(addr))&uint64(block-1) == 0
}
