package redytier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// origin says that a region was filled from Config.File. Until it is written, its bytes can
// be read from there again (A46).
type origin struct{ written atomic.Bool }

// writeChunk is the size of a regionWriter's writes.
const writeChunk = 256 << 10

// regionWriter writes to a grant's regions for a control operation, without a session. It
// belongs to one goroutine.
type regionWriter struct {
	qp      fabric.QueuePair
	remotes []fabric.Remote
	buf     fabric.Region
	done    [1]fabric.Completion
}

// openRegionWriter connects to a grant's server.
func (c *Cache) openRegionWriter(ctx context.Context, g *grant) (_ *regionWriter, err error) {
	ctx, cancel := clock.WithAwakeTimeout(ctx, controlTimeout, context.DeadlineExceeded)
	defer cancel()
	p := &regionWriter{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("VM %s at %s: %w", g.vm, g.fabricAddr, err), p.close())
		}
	}()
	if p.buf, err = c.provider.Alloc(writeChunk); err != nil {
		return nil, fmt.Errorf("%w: %w", errLocal, err)
	}
	hello := redywire.Hello{Ticket: g.ticket, Batch: 1, Depth: 1}
	if p.qp, err = c.dial(ctx, g, hello, 1); err != nil {
		return nil, err
	}
	p.remotes, err = importRegions(ctx, p.qp, g, c.RegionSize())
	return p, err
}

// probe checks that a grant's server answers, and still lends all regions.
func (c *Cache) probe(ctx context.Context, g *grant) error {
	ctx, cancel := clock.WithAwakeTimeout(ctx, reconnectTimeout, context.DeadlineExceeded)
	defer cancel()
	p, err := c.openRegionWriter(ctx, g)
	if err != nil {
		return err
	}
	return p.close()
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
// number of bytes before the chunk.
func (p *regionWriter) fill(ctx context.Context, index uint32, offset, n int64, read func(dst []byte, at int64) error) error {
	for at := int64(0); at < n; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		chunk := p.buf.Bytes()[:min(writeChunk, n-at)]
		if err := read(chunk, at); err != nil {
			return err
		}
		if err := p.write(ctx, chunk, index, offset+at); err != nil {
			return err
		}
		at += int64(len(chunk))
	}
	return nil
}

func (p *regionWriter) write(ctx context.Context, src []byte, index uint32, offset int64) error {
	if err := p.qp.Write(src, p.remotes[index], offset, 0); err != nil {
		return err
	}
	if err := p.qp.Submit(); err != nil {
		return err
	}
	for p.qp.Poll(p.done[:]) == 0 {
		if err := p.qp.Wait(ctx); err != nil {
			return err
		}
	}
	return p.done[0].Err
}

// zero reads zeros.
func zero(dst []byte, _ int64) error {
	clear(dst)
	return nil
}

// populateAll fills a new cache from the prefix of Config.File. The rest of the cache stays
// zeros.
func (c *Cache) populateAll(ctx context.Context) error {
	c.update(func(t *table) {
		for i := range t.regions {
			t.regions[i].origin = new(origin)
		}
	})
	return c.fillFrom(ctx, c.readFile)
}

// fillFrom fills a new cache with the bytes that read returns.
func (c *Cache) fillFrom(ctx context.Context, read func(ctx context.Context, dst []byte, addr int64) error) error {
	filled := 0
	return c.inTurn(ctx, urgency{}, true, func(ctx context.Context) error {
		var places []place
		for i, r := range c.table.Load().regions {
			if r.endpoint == nil {
				return *r.cause
			}
			places = append(places, place{region: i, endpoint: r.endpoint, index: r.index})
		}
		n, err := c.populate(ctx, places[filled:], read)
		filled += n // a region that moves keeps its bytes
		return err
	})
}

// populate fills regions at their places with what read returns for their addresses. It
// returns the number of regions that are complete.
func (c *Cache) populate(ctx context.Context, places []place, read func(ctx context.Context, dst []byte, addr int64) error) (filled int, err error) {
	t := c.table.Load()
	writers := map[*grant]*regionWriter{}
	defer func() {
		for _, p := range writers {
			err = errors.Join(err, p.close())
		}
	}()
	for filled, at := range places {
		g := at.endpoint.grant
		p := writers[g]
		if p == nil {
			if p, err = c.openRegionWriter(ctx, g); err != nil {
				return filled, err
			}
			writers[g] = p
		}
		x := t.span(at.region)
		err := p.fill(ctx, at.index, 0, x.to-x.from, func(dst []byte, at int64) error { return read(ctx, dst, x.from+at) })
		if err != nil {
			return filled, fmt.Errorf("populate [%d, %d) on VM %s: %w", x.from, x.to, g.vm, err)
		}
	}
	return len(places), nil
}

// readFile reads the cache's initial bytes at an address.
func (c *Cache) readFile(_ context.Context, dst []byte, addr int64) error {
	f, err := os.Open(c.cfg.File)
	if err != nil {
		return err
	}
	n, err := f.ReadAt(dst, addr)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	clear(dst[n:])
	return errors.Join(err, f.Close())
}
