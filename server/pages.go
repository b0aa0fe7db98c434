package server

import (
	"sync"

	"github.com/redykv/redykv/internal/mem"
)

// pagesStep is the size of memory that is touched at a time, and pagesAhead the distance
// before the writer.
const (
	pagesStep  = 2 << 20
	pagesAhead = 4 * pagesStep
)

// pages touches memory before it is written, in a goroutine: the first touch of a page
// costs as much as copying it several times. It does nothing if all of the memory is
// resident already, as with shm: asking page by page costs a tenth of the copy.
type pages struct {
	wanted  chan []byte
	working sync.WaitGroup
}

func newPages() *pages {
	p := &pages{wanted: make(chan []byte, 1)}
	p.working.Go(func() {
		for b := range p.wanted {
			mem.Populate(b)
		}
	})
	return p
}

// present returns len(b) if all of b is resident, and 0 otherwise.
func (p *pages) present(b []byte) int {
	if n, err := mem.ResidentOf(b); err == nil && n >= int64(len(b)) {
		return len(b)
	}
	return 0
}

// ahead requests that memory be touched ahead of a writer that is at offset at of b. Memory
// up to done was requested before; ahead returns the new done. It never waits: the writer
// touches the rest itself.
func (p *pages) ahead(b []byte, at, done int) int {
	done = max(done, at&^(pagesStep-1))
	for done < min(len(b), at+pagesAhead) {
		end := min(done+pagesStep, len(b))
		select {
		case p.wanted <- b[done:end]:
			done = end
		default:
			return done
		}
	}
	return done
}

// close waits until no memory is touched any more.
func (p *pages) close() {
	close(p.wanted)
	p.working.Wait()
}
