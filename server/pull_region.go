package server

import (
	"bytes"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
)

// regionCopy copies one region of another server, ascending. The bytes below asked are
// requested or, where the source has a hole, zeros; reads complete in order.
//
// A sparse server gives memory only to what is not zero. If the fabric finds the source's holes,
// only the rest is read, into place; otherwise reads go to buffers, and those of zeros are
// dropped.
type regionCopy struct {
	*pull
	pullRegion
	qp   fabric.QueuePair
	from fabric.Remote

	asked, copied int
	reads         [pullDepth]piece // pending, by number modulo pullDepth
	begun, ended  int              // numbers of reads

	pages  *pages
	paged  int               // memory below is requested from pages
	holes  fabric.HoleFinder // nil: every byte is read
	data   int               // end of the source's data that holes reported last
	buffer []byte            // nil: reads go into place
}

// piece is the destination of one read.
type piece struct {
	at  int
	buf []byte
}

// copyRegion copies one region.
func (p *pull) copyRegion(qp fabric.QueuePair, r pullRegion, pages *pages) error {
	ctx, cancel := p.sourceContext()
	from, err := qp.Import(ctx, r.token)
	cancel()
	if err != nil {
		return &sourceError{p.addr, err}
	}
	defer qp.Release(from)
	if from.Size < int64(len(r.into)) {
		return &sourceError{p.addr, fmt.Errorf("%d bytes of a region that has %d: %w", len(r.into), from.Size, fabric.ErrOutOfBounds)}
	}
	c := regionCopy{pull: p, pullRegion: r, qp: qp, from: from, pages: pages}
	if p.grant.server.opts.Sparse {
		c.paged = len(r.into) // pages would touch zeros
		if c.holes, _ = qp.(fabric.HoleFinder); c.holes == nil {
			c.buffer = p.scratch()
		}
	} else {
		c.paged = pages.present(r.into)
	}
	return c.run()
}

// scratch returns the buffers of reads, made with the first region.
func (p *pull) scratch() []byte {
	if p.buffers == nil {
		p.buffers = make([]byte, pullDepth*p.rate.chunk)
	}
	return p.buffers
}

func (c *regionCopy) run() error {
	var done [pullDepth]fabric.Completion
	for c.copied < len(c.into) {
		c.paged = c.pages.ahead(c.into, c.asked, c.paged)
		if err := c.ask(); err != nil {
			return err
		}
		n := c.qp.Poll(done[:])
		for _, d := range done[:n] {
			if d.Err != nil {
				return &sourceError{c.addr, d.Err}
			}
			if err := c.take(d.N); err != nil {
				return err
			}
		}
		if c.copied < len(c.into) {
			c.report(c.target, c.copied)
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if n == 0 && c.begun > c.ended {
			if err := c.await(c.qp); err != nil {
				return err
			}
		}
	}
	return c.rate.settle(c.ctx)
}

// ask starts reads until enough are pending.
func (c *regionCopy) ask() error {
	for c.asked < len(c.into) && c.begun-c.ended < pullDepth && (c.begun == c.ended || c.rate.ready()) {
		if err := c.skipHole(); err != nil {
			return err
		}
		n := min(c.rate.chunk, len(c.into)-c.asked)
		if c.holes != nil {
			n = min(n, c.data-c.asked)
		}
		if n == 0 {
			break
		}
		if err := c.rate.take(c.ctx, n); err != nil {
			return err
		}
		slot := c.begun % pullDepth
		r := piece{at: c.asked, buf: c.into[c.asked : c.asked+n]}
		if c.buffer != nil {
			r.buf = c.buffer[slot*c.rate.chunk:][:n]
		}
		if err := c.qp.Read(r.buf, c.from, int64(c.asked), 0); err != nil {
			return &sourceError{c.addr, err}
		}
		c.reads[slot] = r
		c.asked += n
		c.begun++
	}
	if err := c.qp.Submit(); err != nil {
		return &sourceError{c.addr, err}
	}
	return nil
}

// skipHole discards the memory of a hole of the source, if one begins at asked.
func (c *regionCopy) skipHole() error {
	if c.holes == nil || c.asked < c.data {
		return nil
	}
	ctx, cancel := c.sourceContext()
	begin, end, err := c.holes.NextData(ctx, c.from, int64(c.asked))
	cancel()
	if err != nil {
		return &sourceError{c.addr, err}
	}
	next := min(int(begin), len(c.into))
	c.data = min(int(end), len(c.into))
	err = c.discard(c.asked, next-c.asked)
	c.asked = next
	return err
}

// take ends the oldest read, of n bytes.
func (c *regionCopy) take(n int) error {
	r := c.reads[c.ended%pullDepth]
	c.ended++
	c.grant.server.counts.pulled.Add(uint64(n))
	switch {
	case c.buffer == nil:
	case bytes.Equal(r.buf, zeros[:n]):
		return c.discard(r.at, n)
	default:
		copy(c.into[r.at:], r.buf)
	}
	c.copied += n
	return nil
}

// discard makes n bytes zeros that are copied then.
func (c *regionCopy) discard(at, n int) error {
	if n > 0 {
		if err := c.region.Discard(int64(at), int64(n)); err != nil {
			return fmt.Errorf("region %d: %w", c.target, err)
		}
	}
	c.copied += n
	return nil
}

// zeros is what a buffer without data holds.
var zeros [copyChunk]byte
