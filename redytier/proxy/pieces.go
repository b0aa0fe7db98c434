package proxy

import (
	"context"

	"github.com/redykv/redykv/redytier"
)

// pieceSize is the most bytes of one access to a cache, which have one buffer.
const pieceSize = 256 << 10

// maxPieces bounds Options.Memory.
const maxPieces = 1 << 20

// pieces are the buffers of all requests. A buffer is allocated when it is first used.
type pieces struct{ free chan []byte }

func newPieces(count int) *pieces {
	p := &pieces{free: make(chan []byte, count)}
	for range count {
		p.free <- nil
	}
	return p
}

// window is the buffers of one request, one or two. One is read or written at the cache while the
// other is sent or received.
type window struct {
	pieces *pieces
	slots  []slot
}

// slot is a buffer of a window. While pending is set the cache owns the buffer, until done has its
// access's result.
type slot struct {
	piece   []byte
	pending bool
	done    chan error
}

// take returns a window for length bytes. It waits for the first buffer until ctx ends, and not
// for the second, so that requests with one buffer do not wait for each other.
func (p *pieces) take(ctx context.Context, length int64) (*window, error) {
	w := &window{pieces: p, slots: make([]slot, 0, 2)}
	select {
	case b := <-p.free:
		w.add(b)
	case <-ctx.Done():
		return nil, problemf(CodeBusy, "no memory for the request's bytes: too many requests: %w", ctx.Err())
	}
	if length > pieceSize {
		select {
		case b := <-p.free:
			w.add(b)
		default:
		}
	}
	return w, nil
}

func (w *window) add(piece []byte) {
	if piece == nil {
		piece = make([]byte, pieceSize)
	}
	w.slots = append(w.slots, slot{piece: piece, done: make(chan error, 1)})
}

// release returns the buffers as soon as the cache does not use them any more.
func (w *window) release() {
	for i := range w.slots {
		s := &w.slots[i]
		if !s.pending {
			w.pieces.free <- s.piece
			continue
		}
		go func() {
			_ = s.wait(context.Background()) // nobody waits for its result
			w.pieces.free <- s.piece
		}()
	}
}

// at returns the slot for the piece of that number.
func (w *window) at(number int64) *slot { return &w.slots[number%int64(len(w.slots))] }

// start begins to read or write the first length bytes of the slot's buffer at addr. ctx bounds
// the wait for room in the cache's queue.
func (s *slot) start(ctx context.Context, c *redytier.Client, write bool, length, addr int64) {
	access := c.Read
	if write {
		access = c.Write
	}
	s.pending = true
	if err := access(ctx, s.piece[:length], addr, func(_ int, err error) { s.done <- err }); err != nil {
		s.done <- err // the callback is not called
	}
}

// wait returns the result of the access that start began, if there is one. If ctx ends before,
// the access stays pending.
func (s *slot) wait(ctx context.Context) error {
	if !s.pending {
		return nil
	}
	select {
	case err := <-s.done:
		s.pending = false
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
