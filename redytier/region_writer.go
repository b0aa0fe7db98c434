package redytier

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

const (
	// writeChunk is the size of a regionWriter's writes, writeDepth the number of its buffers.
	writeChunk = 256 << 10
	writeDepth = 8
)

// regionWriter writes to a grant's regions for a control operation, without a session. It
// belongs to one goroutine.
type regionWriter struct {
	provider fabric.Provider
	qp       fabric.QueuePair
	grant    *grant
	size     int64                    // of a region
	remotes  map[uint32]fabric.Remote // of the regions that it has used
	buf      fabric.Region            // writeDepth chunks; nil before the first fill
	done     [writeDepth]fabric.Completion
}

// openRegionWriter connects to a grant's server. The server ends the connection of an earlier writer
// that fills first: what that one has sent may still be under way.
func (c *Cache) openRegionWriter(ctx context.Context, g *grant, fills bool) (_ *regionWriter, err error) {
	ctx, cancel := clock.WithAwakeTimeout(ctx, controlTimeout, context.DeadlineExceeded)
	defer cancel()
	p := &regionWriter{provider: c.provider, grant: g, size: c.RegionSize(), remotes: map[uint32]fabric.Remote{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("VM %s at %s: %w", g.vm, g.fabricAddr, err), p.close())
		}
	}()
	hello := redywire.Hello{Ticket: g.ticket, Batch: 1, Depth: 1}
	if fills {
		hello.Owner, hello.Generation = c.filler, g.fills.Add(1)
	}
	if p.qp, err = c.dial(ctx, g, hello, writeDepth); err != nil {
		return nil, err
	}
	return p, nil
}

// region imports a region of the grant.
func (p *regionWriter) region(ctx context.Context, index uint32) (fabric.Remote, error) {
	r, ok := p.remotes[index]
	if ok {
		return r, nil
	}
	r, err := importRegion(ctx, p.qp, p.grant, int(index), p.size)
	if err == nil {
		p.remotes[index] = r
	}
	return r, err
}

// probe checks that a grant's server answers, and still lends its memory.
func (c *Cache) probe(ctx context.Context, g *grant) error {
	return g.persist(ctx, func(ctx context.Context) error {
		p, err := c.openRegionWriter(ctx, g, false)
		if err != nil {
			return err
		}
		_, err = p.region(ctx, 0)
		return errors.Join(err, p.close())
	})
}

func (p *regionWriter) close() (err error) {
	if p.qp != nil {
		err = p.qp.Close()
	}
	if p.buf != nil {
		err = errors.Join(err, p.buf.Close())
	}
	return err
}

// fill writes n bytes to a region from offset on, which read returns in chunks; at is the
// number of bytes before the chunk. A goroutine calls read, for chunks in their order, while
// earlier chunks are written. After an error the writer can only be closed.
func (p *regionWriter) fill(ctx context.Context, index uint32, offset, n int64, read func(dst []byte, at int64) error) error {
	to, err := p.region(ctx, index)
	if err != nil {
		return err
	}
	if p.buf == nil {
		buf, err := p.provider.Alloc(writeDepth * writeChunk)
		if err != nil {
			return fmt.Errorf("%w: %w", errLocal, err)
		}
		p.buf = buf
	}
	f := &filling{p: p, free: make(chan []byte, writeDepth), filled: make(chan chunk, writeDepth+1)}
	for slot := range writeDepth {
		f.free <- p.buf.Bytes()[slot*writeChunk:][:writeChunk]
	}
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() { f.readAhead(ctx, n, read) })
	defer reader.Wait()
	defer cancel()
	if err = f.write(ctx, to, offset); err != nil {
		p.grant.setLived(index, false)
	}
	return err
}

// filling is one call of fill. A buffer belongs to the goroutine that reads, then to that which
// writes, until its write has ended; the channels hand it over.
type filling struct {
	p      *regionWriter
	free   chan []byte
	filled chan chunk // closed after the last one
	sent   [][]byte   // being written, the oldest first
}

// chunk is a part of a region that was read, or the error of reading it.
type chunk struct {
	bytes []byte
	at    int64
	err   error
}

// readAhead reads chunks as long as there are free buffers.
func (f *filling) readAhead(ctx context.Context, n int64, read func(dst []byte, at int64) error) {
	defer close(f.filled)
	for at := int64(0); at < n; {
		var buf []byte
		select {
		case buf = <-f.free:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			f.filled <- chunk{err: context.Cause(ctx)}
			return
		}
		c := chunk{bytes: buf[:min(writeChunk, n-at)], at: at}
		c.err = read(c.bytes, at)
		f.filled <- c // has room for all buffers and an error
		if c.err != nil {
			return
		}
		at += int64(len(c.bytes))
	}
}

// write writes chunks as they are read.
func (f *filling) write(ctx context.Context, to fabric.Remote, offset int64) error {
	for more := true; more || len(f.sent) > 0; {
		var c chunk
		ready := false
		if len(f.sent) == 0 {
			c, more = <-f.filled
			ready = more
		} else {
			select {
			case c, more = <-f.filled:
				ready = more
			default:
			}
		}
		switch {
		case ready && c.err != nil:
			return c.err
		case ready:
			if err := f.send(c, to, offset); err != nil {
				return err
			}
		case len(f.sent) > 0:
			if err := f.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *filling) send(c chunk, to fabric.Remote, offset int64) error {
	if err := f.p.qp.Write(c.bytes, to, offset+c.at, 0); err != nil {
		return err
	}
	f.sent = append(f.sent, c.bytes[:writeChunk])
	return f.p.qp.Submit()
}

// wait waits until a write has ended. Writes end in their order.
func (f *filling) wait(ctx context.Context) error {
	n := f.p.qp.Poll(f.p.done[:])
	for n == 0 {
		if err := f.p.qp.Wait(ctx); err != nil {
			return err
		}
		n = f.p.qp.Poll(f.p.done[:])
	}
	for i := range f.p.done[:n] {
		if err := f.p.done[i].Err; err != nil {
			return err
		}
		f.free <- f.sent[i]
	}
	f.sent = append(f.sent[:0], f.sent[n:]...)
	return nil
}

// zero reads zeros.
func zero(dst []byte, _ int64) error {
	clear(dst)
	return nil
}
