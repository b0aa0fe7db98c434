package device

import (
	"context"
	"math"
)

// refillCopier copies pieces of holes, several at a time. Each is read from the tiers behind and
// then written to the tier. It belongs to the goroutine of its refill.
type refillCopier struct {
	source *tieredQueue // of the tiers behind; not in Tiered.queues, whose reads are counted
	queue  RefillQueue
	pieces [refillDepth]piece // by tag, in both queues
	done   [refillDepth]Completion

	reading, writing int // pieces in these states
}

// piece is a part of a hole that is being copied:
//
//	free ──start──► reading ──Refill──► writing ──► free
//
// An error frees it.
type piece struct {
	hole  Hole
	buf   []byte // allocated when it is first needed
	state pieceState
}

type pieceState uint8

const (
	pieceFree pieceState = iota
	pieceReading
	pieceWriting
)

// outcome is what happened to pieces.
type outcome struct {
	copied, pieces int64 // bytes, and pieces
	failed         int64 // lowest address of a piece that failed, noAddress if none did
}

func newRefillCopier(t *Tiered) *refillCopier {
	return &refillCopier{source: newTieredQueue(t, refillDepth)}
}

// open opens the queues that are not open yet.
func (c *refillCopier) open(r *refill) error {
	tiers := r.t.tiers
	for i := r.tier.index + 1; i < len(tiers); i++ {
		if tiers[i].out() {
			continue
		}
		if err := c.source.open(i); err != nil && i == len(tiers)-1 {
			return err
		}
	}
	if c.queue != nil {
		return nil
	}
	var err error
	c.queue, err = r.dev.NewRefillQueue(refillDepth)
	return err
}

// inFlight is the number of pieces that are being copied.
func (c *refillCopier) inFlight() int { return c.reading + c.writing }

// lowest returns the lowest address of a piece in flight, and whether one overlaps a hole.
func (c *refillCopier) lowest(hole Hole) (low int64, overlaps bool) {
	low = math.MaxInt64
	for i := range c.pieces {
		if p := &c.pieces[i]; p.state != pieceFree {
			low = min(low, p.hole.From)
			overlaps = overlaps || hole.From < p.hole.To && p.hole.From < hole.To
		}
	}
	return low, overlaps
}

// start begins to copy a hole of at most size bytes. Fewer than refillDepth pieces are in flight.
func (c *refillCopier) start(hole Hole, size, alignment int) error {
	i := 0
	for c.pieces[i].state != pieceFree {
		i++
	}
	p := &c.pieces[i]
	if len(p.buf) < size {
		p.buf = AlignedBuffer(size, alignment)
	}
	p.hole = hole
	if err := c.source.Read(p.bytes(), hole.From, uint64(i)); err != nil {
		return err
	}
	p.state = pieceReading
	c.reading++
	return nil
}

func (p *piece) bytes() []byte { return p.buf[:p.hole.To-p.hole.From] }

// advance submits what was started and takes pieces that are read, or written, to their next
// state. If there are none, it waits for one.
func (c *refillCopier) advance(ctx context.Context) (o outcome, err error) {
	o.failed = noAddress
	if err := c.source.Submit(); err != nil {
		return o, err
	}
	if c.step(&o) > 0 {
		return o, c.queue.Submit()
	}
	// Of a piece that is written, memory or a network is expected to end its operation sooner.
	switch {
	case c.writing > 0:
		err = c.queue.Wait(ctx)
	case c.reading > 0:
		err = c.source.Wait(ctx)
	}
	return o, err
}

// step handles completions, and returns their number.
func (c *refillCopier) step(o *outcome) (n int) {
	if c.writing > 0 {
		for _, done := range c.done[:c.queue.Poll(c.done[:])] {
			if done.Event != Committed {
				c.written(done, o)
				n++
			}
		}
	}
	if c.reading > 0 {
		for _, done := range c.done[:c.source.Poll(c.done[:])] {
			c.read(done, o)
			n++
		}
	}
	return n
}

// read writes a piece that was read.
func (c *refillCopier) read(done Completion, o *outcome) {
	p := &c.pieces[done.Tag]
	c.reading--
	if done.Err != nil || c.queue.Refill(p.bytes(), p.hole, done.Tag) != nil {
		c.fail(p, o)
		return
	}
	p.state = pieceWriting
	c.writing++
}

// written ends a piece.
func (c *refillCopier) written(done Completion, o *outcome) {
	p := &c.pieces[done.Tag]
	c.writing--
	if done.Err != nil {
		c.fail(p, o)
		return
	}
	o.copied += p.hole.To - p.hole.From
	o.pieces++
	p.state = pieceFree
}

// fail ends a piece that was not copied. Its hole stays.
func (c *refillCopier) fail(p *piece, o *outcome) {
	o.failed = min(o.failed, p.hole.From)
	p.state = pieceFree
}

// release frees the buffers while nothing is in flight.
func (c *refillCopier) release() {
	if c != nil && c.inFlight() == 0 {
		for i := range c.pieces {
			c.pieces[i].buf = nil
		}
	}
}

// close closes the queues. It waits for pending operations of the last tier. Those of another
// tier, which may be stuck, are left to end later: by the functions that it returns.
func (c *refillCopier) close(t *Tiered, target *tier) (left []func()) {
	last := t.last()
	end := func(tr *tier, q Queue, pending bool) {
		do := func() {
			if err := q.Close(); err != nil && !tr.out() {
				t.opts.Logger.Warn("closing a queue of a refill failed", "tier", target.name, "from", tr.name, "err", err)
			}
		}
		if !pending || tr == last {
			do()
			return
		}
		t.leave(tr)
		left = append(left, func() { do(); t.left(tr) })
	}
	for i, q := range c.source.queues {
		if q != nil {
			end(t.tiers[i], q, c.source.pending[i] > 0)
		}
	}
	if c.queue != nil {
		end(target, c.queue, c.writing > 0)
	}
	return left
}
