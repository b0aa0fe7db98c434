package core

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/redykv/redykv/internal/mem"
)

// PreparePiece is the memory in bytes that a goroutine of a Preparer prepares at a time. A region
// that is closed waits for the pieces that are being prepared.
const PreparePiece = 4 * mem.HugePage

// Preparer populates new regions with huge pages in the background, several at a time: the first
// access to a page, or its registration with an adapter, then does not wait until it is zeroed.
// Its goroutines end when nothing is left to prepare. It is safe for concurrent use.
type Preparer struct {
	// Populate populates memory that others may access, whole huge pages. It returns false if
	// populating the rest of the region makes no sense.
	Populate func(memory []byte) bool

	mu      sync.Mutex
	pieces  []piece // that wait, the oldest first
	waiting int64   // bytes of pieces
	workers int
	working sync.WaitGroup // counts workers; raised under mu
}

// Preparation is what a Preparer does for one region. Preparer.mu guards it.
type Preparation struct {
	left  int           // pieces that wait or are being populated
	ended chan struct{} // closed when none is left; nil: there never was one
}

// piece is a part of a region's memory.
type piece struct {
	of     *Preparation
	memory []byte
}

// maxWorkers is the most goroutines of a Preparer: the other processors are left to those who
// access memory that is ready.
func maxWorkers() int { return min(max(runtime.GOMAXPROCS(0)/2, 1), 8) }

// Prepare begins to populate the huge pages of a region's memory. Memory larger than half of what
// the machine can spare is left to be populated page by page.
func (p *Preparer) Prepare(of *Preparation, memory []byte) {
	size := int64(len(memory))
	if size < mem.HugePage {
		return
	}
	available := mem.Available()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting+size > available/2 {
		return
	}
	of.ended = make(chan struct{})
	for len(memory) >= mem.HugePage {
		n := min(len(memory), PreparePiece) &^ (mem.HugePage - 1)
		p.pieces = append(p.pieces, piece{of, memory[:n]})
		p.waiting += int64(n)
		of.left++
		memory = memory[n:]
	}
	for range min(maxWorkers()-p.workers, len(p.pieces)) {
		p.workers++
		p.working.Go(p.work)
	}
}

// work populates pieces until none waits.
func (p *Preparer) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.pieces) > 0 {
		next := p.pieces[0]
		p.pieces = p.pieces[1:]
		p.waiting -= int64(len(next.memory))
		p.mu.Unlock()
		all := p.Populate(next.memory)
		p.mu.Lock()
		next.of.end(1)
		if !all {
			p.drop(next.of)
		}
	}
	p.workers--
}

// Ready returns when a region's pieces are populated, or ctx ends. They come before those of other
// regions.
func (p *Preparer) Ready(ctx context.Context, of *Preparation) {
	p.mu.Lock()
	var own, others []piece
	for _, w := range p.pieces {
		if w.of == of {
			own = append(own, w)
		} else {
			others = append(others, w)
		}
	}
	p.pieces = append(own, others...)
	ended := of.ended
	p.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
}

// End returns when no goroutine accesses the region's memory any more.
func (p *Preparer) End(of *Preparation) {
	p.mu.Lock()
	p.drop(of)
	ended := of.ended
	p.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// Close returns when no goroutine accesses any region's memory any more. Prepare is not called
// afterwards.
func (p *Preparer) Close() {
	p.mu.Lock()
	for len(p.pieces) > 0 {
		p.drop(p.pieces[0].of)
	}
	p.mu.Unlock()
	p.working.Wait()
}

// drop removes a region's waiting pieces. Called with mu held.
func (p *Preparer) drop(of *Preparation) {
	n := 0
	p.pieces = slices.DeleteFunc(p.pieces, func(w piece) bool {
		if w.of == of {
			n++
			p.waiting -= int64(len(w.memory))
		}
		return w.of == of
	})
	of.end(n)
}

// end notes that n pieces are populated or dropped. Called with Preparer.mu held.
func (of *Preparation) end(n int) {
	if of.left -= n; of.left == 0 && n > 0 {
		close(of.ended)
	}
}
