package ssdtier

import (
	"sync"

	"github.com/redykv/redykv/device"
)

// request is one read or write of whole blocks, from submit until complete. The
// ring or the engine owns it in between.
type request struct {
	q     *queue
	slot  uint32
	write bool
	buf   []byte
	addr  int64
	need  int   // of a read: bytes of buf that must come; the file may end after them
	err   error // the outcome

	segment *segment // while it is on the ring, at an offset there
	off     int64

	next *request // in the list that it is on
}

// run carries the request out, one segment after another.
func (r *request) run() {
	d := r.q.d
	size := d.opts.SegmentSize
	for done := 0; done < len(r.buf) && r.err == nil; {
		addr := r.addr + int64(done)
		n := int(min(int64(len(r.buf)-done), size-addr%size))
		piece := r.buf[done : done+n]
		if r.write {
			r.err = d.writeAt(piece, addr)
		} else {
			r.err = d.readAt(piece, addr, min(n, r.need-done))
		}
		done += n
	}
	r.q.complete(r)
}

// engine carries requests out and calls their queues' complete.
type engine interface {
	// submit starts the n requests of the list that begins with first.
	submit(first, last *request, n int)
	// close returns once nothing runs any more. Requests submitted later end
	// with device.ErrClosed.
	close()
}

// pool is the engine that works everywhere: a bounded number of goroutines that
// take requests from one list, in order. They are started when there is more to
// do than idle ones can take, and stay.
type pool struct {
	limit int
	wg    sync.WaitGroup

	mu          sync.Mutex
	work        sync.Cond // there is a request, or closed
	first, last *request
	workers     int
	idle        int // workers that wait and that nobody has signalled
	closed      bool
}

func newPool(limit int) *pool {
	p := &pool{limit: limit}
	p.work.L = &p.mu
	return p
}

func (p *pool) submit(first, last *request, n int) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		for r := first; r != nil; {
			next := r.next
			r.next, r.err = nil, device.ErrClosed
			r.q.complete(r)
			r = next
		}
		return
	}
	if p.first == nil {
		p.first = first
	} else {
		p.last.next = first
	}
	p.last = last
	for ; n > 0 && p.idle > 0; n-- {
		p.idle--
		p.work.Signal()
	}
	for ; n > 0 && p.workers < p.limit; n-- {
		p.workers++
		p.wg.Go(p.serve)
	}
	p.mu.Unlock()
}

// serve is a worker.
func (p *pool) serve() {
	p.mu.Lock()
	for {
		for p.first == nil && !p.closed {
			p.idle++
			p.work.Wait()
		}
		r := p.first
		if r == nil {
			p.mu.Unlock()
			return
		}
		p.first = r.next
		r.next = nil
		p.mu.Unlock()
		r.run()
		p.mu.Lock()
	}
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.work.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}
