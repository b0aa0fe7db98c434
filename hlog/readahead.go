package hlog

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redykv/redykv/device"
)

// readAhead reads the device in order: the next piece is read while one is used. The first
// pieces are small, since a walk may end soon. Pieces do not cross pages.
type readAhead struct {
	log    *Log
	queue  device.Queue // nil until it is needed
	pieces [2]piece     // [first, next) are pending or have arrived
	first  uint64       // pieces[i%2]; i is the read's tag
	next   uint64
	issued int64 // the end of the last piece
	least  int   // size of the first piece, at most
	size   int   // of the next piece, at most
	used   bool  // the walker uses pieces[first]
}

type piece struct {
	address int64
	space   []byte // owned by the queue until arrived
	n       int
	arrived bool
	err     error
}

// Sizes of pieces in bytes.
const (
	firstPiece = 16 << 10
	lastPiece  = 1 << 20
)

func (p *piece) end() int64 { return p.address + int64(p.n) }

// take returns the bytes at address, up to the end of a piece, for use until the next call.
// Everything below limit is on the device. If address is not in a piece or after it, reading
// starts again there. If ctx ends first, the reads go on, and the next take or stop waits for them.
func (r *readAhead) take(ctx context.Context, address, limit int64) ([]byte, error) {
	if r.used {
		r.first++
		r.used = false
	}
	if r.first == r.next || address < r.pieces[r.first%2].address || address >= r.issued {
		if err := r.stop(ctx); err != nil {
			return nil, err
		}
		r.issued = address
	}
	for {
		if err := r.issue(limit); err != nil {
			return nil, err
		}
		p := &r.pieces[r.first%2]
		if err := r.awaitPiece(ctx, p); err != nil {
			return nil, err
		}
		if address < p.end() {
			r.used = true
			if p.err != nil {
				return nil, fmt.Errorf("hlog: reading %d bytes at %d: %w", p.n, p.address, p.err)
			}
			return p.space[address-p.address : p.n], nil
		}
		r.first++ // skipped
	}
}

// issue starts reads of what follows, as many as pieces allows.
func (r *readAhead) issue(limit int64) error {
	if r.queue == nil {
		queue, err := r.log.dev.NewQueue(len(r.pieces))
		if err != nil {
			return fmt.Errorf("hlog: reading ahead: %w", err)
		}
		r.queue = queue
	}
	for r.next-r.first < uint64(len(r.pieces)) && r.issued < limit {
		p := &r.pieces[r.next%2]
		n := int(min(int64(r.size), r.log.rest(r.issued), limit-r.issued))
		if cap(p.space) < n {
			p.space = make([]byte, r.size)
		}
		p.address, p.n, p.arrived, p.err = r.issued, n, false, nil
		if err := r.queue.Read(p.space[:n], p.address, r.next); err != nil {
			return fmt.Errorf("hlog: reading %d bytes at %d: %w", n, p.address, err)
		}
		r.next++
		r.issued = p.end()
		r.size = min(2*r.size, lastPiece)
	}
	if err := r.queue.Submit(); err != nil {
		return fmt.Errorf("hlog: reading ahead: %w", err)
	}
	return nil
}

// await returns when all pieces have arrived, or ctx ends.
func (r *readAhead) await(ctx context.Context) (err error) {
	for i := r.first; i < r.next; i++ {
		err = cmp.Or(err, r.awaitPiece(ctx, &r.pieces[i%2]))
	}
	return err
}

// pending reports whether a piece has not arrived.
func (r *readAhead) pending() bool {
	for i := r.first; i < r.next; i++ {
		if !r.pieces[i%2].arrived {
			return true
		}
	}
	return false
}

// awaitPiece returns when a piece has arrived, or ctx ends.
func (r *readAhead) awaitPiece(ctx context.Context, p *piece) error {
	for !p.arrived {
		var done [2]device.Completion
		n := r.queue.Poll(done[:])
		for _, c := range done[:n] {
			arrived := &r.pieces[c.Tag%2]
			arrived.arrived, arrived.err = true, c.Err
		}
		if n == 0 {
			if err := r.queue.Wait(ctx); err != nil {
				return fmt.Errorf("hlog: reading ahead: %w", err)
			}
		}
	}
	return nil
}

// stop waits for pending reads and drops what was read ahead.
func (r *readAhead) stop(ctx context.Context) error {
	if err := r.await(ctx); err != nil {
		return err
	}
	r.first, r.issued, r.used, r.size = r.next, 0, false, r.least
	return nil
}

func (r *readAhead) close() error {
	if r.queue == nil {
		return nil
	}
	if err := r.queue.Close(); err != nil {
		return fmt.Errorf("hlog: reading ahead: %w", err)
	}
	return nil
}
