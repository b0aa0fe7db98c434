package server

import (
	"sync"

	"github.com/redykv/redykv/internal/mem"
)

// pagesStep is how much memory is made ready at a time, and pagesAhead how far
// before it is written.
const (
	pagesStep  = 2 << 20
	pagesAhead = 4 * pagesStep
)

// pages makes memory ready that will be written soon: the first touch of a page
// costs as much as copying it several times, and somebody else may as well pay.
// Where all of it is there already, as over shm, nobody does anything: asking costs a
// tenth of the copying, and somebody a processor.
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

// present is how much of b is ready, or on its way to be, before anything was asked
// for: all or nothing.
func (p *pages) present(b []byte) int {
	if n, err := mem.ResidentOf(b); err == nil && n >= int64(len(b)) {
		return len(b)
	}
	return 0
}

// ahead is told that b is written up to at, and that it is ready, or on its way to
// be, up to done. It returns the new done, and never waits: what it does not come
// to is made ready by the writing.
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

// close returns when nothing is touched any more.
func (p *pages) close() {
	close(p.wanted)
	p.working.Wait()
}
