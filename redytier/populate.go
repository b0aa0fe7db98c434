package redytier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// origin is where the bytes of a region came from: Config.File. As long as nobody
// has written to it, they can be had there again (A46).
type origin struct{ written atomic.Bool }

// porterChunk is how much a porter writes at a time.
const porterChunk = 256 << 10

// porter writes to a grant's regions for a control operation, beside all sessions.
// One goroutine.
type porter struct {
	qp      fabric.QueuePair
	remotes []fabric.Remote
	buf     fabric.Region
	done    [1]fabric.Completion
}

// openPorter connects to a grant's server.
func (c *Cache) openPorter(ctx context.Context, g *grant) (_ *porter, err error) {
	ctx, cancel := clock.WithAwakeTimeout(ctx, controlTimeout, context.DeadlineExceeded)
	defer cancel()
	p := &porter{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("VM %s at %s: %w", g.vm, g.fabricAddr, err), p.close())
		}
	}()
	if p.buf, err = c.provider.Alloc(porterChunk); err != nil {
		return nil, fmt.Errorf("%w: %w", errOurs, err)
	}
	hello := redywire.Hello{Ticket: g.ticket, Batch: 1, Depth: 1}
	if p.qp, err = c.dial(ctx, g, hello, 1); err != nil {
		return nil, err
	}
	p.remotes, err = importRegions(ctx, p.qp, g, c.RegionSize())
	return p, err
}

// probe says whether a grant's server answers, and still lends what it did.
func (c *Cache) probe(ctx context.Context, g *grant) error {
	ctx, cancel := clock.WithAwakeTimeout(ctx, reconnectTimeout, context.DeadlineExceeded)
	defer cancel()
	p, err := c.openPorter(ctx, g)
	if err != nil {
		return err
	}
	return p.close()
}

func (p *porter) close() (err error) {
	if p.qp != nil {
		err = p.qp.Close()
	}
	if p.buf != nil {
		err = errors.Join(err, p.buf.Close())
	}
	return err
}

// fill writes n bytes to a region from offset on, as read gives them, chunk by
// chunk; at counts from 0.
func (p *porter) fill(ctx context.Context, index uint32, offset, n int64, read func(dst []byte, at int64) error) error {
	for at := int64(0); at < n; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		chunk := p.buf.Bytes()[:min(porterChunk, n-at)]
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

func (p *porter) write(ctx context.Context, src []byte, index uint32, offset int64) error {
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

// zero is a source of unwritten memory.
func zero(dst []byte, _ int64) error {
	clear(dst)
	return nil
}

// populateAll fills a new cache from Config.File, whose prefix is all that is read.
// Where the file ends before the cache does, the rest stays zeros.
func (c *Cache) populateAll(ctx context.Context) error {
	c.update(func(t *table) {
		for i := range t.regions {
			t.regions[i].origin = new(origin)
		}
	})
	return c.fillFrom(ctx, c.readFile)
}

// fillFrom fills a new cache with what read gives.
func (c *Cache) fillFrom(ctx context.Context, read func(ctx context.Context, dst []byte, addr int64) error) error {
	filled := 0
	return c.inTurn(ctx, urgency{}, func(ctx context.Context) error {
		var places []place
		for i, r := range c.table.Load().regions {
			if r.link == nil {
				return *r.cause
			}
			places = append(places, place{region: i, link: r.link, index: r.index})
		}
		n, err := c.populate(ctx, places[filled:], read)
		filled += n // what moves meanwhile does so with its bytes
		return err
	})
}

// populate fills regions at their places with what read gives for their addresses, and
// says how many of them hold all of it.
func (c *Cache) populate(ctx context.Context, places []place, read func(ctx context.Context, dst []byte, addr int64) error) (filled int, err error) {
	t := c.table.Load()
	porters := map[*grant]*porter{}
	defer func() {
		for _, p := range porters {
			err = errors.Join(err, p.close())
		}
	}()
	for filled, at := range places {
		g := at.link.grant
		p := porters[g]
		if p == nil {
			if p, err = c.openPorter(ctx, g); err != nil {
				return filled, err
			}
			porters[g] = p
		}
		from, to := t.span(at.region)
		err := p.fill(ctx, at.index, 0, to-from, func(dst []byte, at int64) error { return read(ctx, dst, from+at) })
		if err != nil {
			return filled, fmt.Errorf("populate [%d, %d) on VM %s: %w", from, to, g.vm, err)
		}
	}
	return len(places), nil
}

// readFile reads the cache's initial bytes.
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

// replaceLost finds new memory for everything that is lost, fills it from the
// copies that there are (R83, A49), and makes it answer again. What nobody has a
// copy of comes back as zeros, but not before the application has been told (A46). The
// keeper calls it, without the turn: who is told may be waiting for that.
func (c *Cache) replaceLost(ctx context.Context, lost *grant, u urgency) error {
	for rest := true; rest; {
		if err := c.tellOfZeros(ctx); err != nil {
			return err
		}
		err := c.inTurn(ctx, u, func(ctx context.Context) (err error) {
			rest, err = c.replaceTold(ctx, lost)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tellOfZeros tells the application of lost regions that nobody has a copy of.
func (c *Cache) tellOfZeros(ctx context.Context) error {
	t := c.table.Load()
	var regions []int
	for i := range t.regions {
		if r := &t.regions[i]; r.link == nil && !r.told && !c.hasCopy(r) {
			regions = append(regions, i)
		}
	}
	if len(regions) == 0 {
		return nil
	}
	var events []Event
	for _, span := range t.spans(regions) {
		events = append(events, t.event(Event{Kind: DataLost}, span))
	}
	if err := c.watcher.reportAll(ctx, events); err != nil {
		return err
	}
	c.update(func(now *table) {
		for _, i := range regions {
			if i < len(now.regions) && now.regions[i].link == nil && now.regions[i].epoch == t.regions[i].epoch {
				now.regions[i].told = true
			}
		}
	})
	return nil
}

// replaceTold replaces the lost regions that have a copy, or whose loss was told. rest
// says that others are left. The turn's holder calls it.
func (c *Cache) replaceTold(ctx context.Context, lost *grant) (rest bool, err error) {
	t := c.table.Load()
	var regions []int
	for i := range t.regions {
		switch r := &t.regions[i]; {
		case r.link != nil:
		case r.told || c.hasCopy(r):
			regions = append(regions, i)
		default:
			rest = true
		}
	}
	if len(regions) == 0 {
		return rest, c.tidy(ctx)
	}
	var links []*link
	switch {
	case !c.gone():
		links, _, err = c.enlist(ctx, &managerv1.ReallocateRequest{
			CacheId: c.ID(), Regions: uint32(len(regions)), AvoidVms: []string{lost.vm}, Client: c.cfg.client(),
		})
	case rest:
		return rest, nil
	case len(regions) < len(t.regions):
		err = fmt.Errorf("%w: %d of its regions still answer", errForgotten, len(t.regions)-len(regions))
	default:
		links, err = c.allocateAgain(ctx)
	}
	if err != nil {
		return rest, err
	}
	places := assignTo(regions, links)
	c.setState(regions, Recovering)
	kept, gone := c.withCopy(places)
	filled, err := c.populate(ctx, kept, c.copyOf)
	rest = c.restore(kept[:filled], gone) || rest
	c.setState(regions, Lost) // those that were not restored
	err = errors.Join(err, c.tidy(ctx))
	c.giveBack(ctx) // the places of those
	return rest, err
}

// setState says how it stands with regions that do not answer.
func (c *Cache) setState(regions []int, s RegionState) {
	c.update(func(t *table) {
		for _, i := range regions {
			if t.regions[i].link == nil {
				t.regions[i].state = s
			}
		}
	})
}

// hasCopy says whether there is a copy of a region's bytes.
func (c *Cache) hasCopy(r *region) bool {
	return c.cfg.Recover != nil || r.origin != nil && !r.origin.written.Load()
}

// withCopy tells the regions that come from a copy from those that will be zeros.
func (c *Cache) withCopy(places []place) (kept, gone []place) {
	t := c.table.Load()
	for _, p := range places {
		if t.regions[p.region].told {
			gone = append(gone, p)
		} else {
			kept = append(kept, p)
		}
	}
	return kept, gone
}

// copyOf reads a lost region's bytes from where there is a copy.
func (c *Cache) copyOf(ctx context.Context, dst []byte, addr int64) error {
	if c.cfg.Recover != nil {
		return c.cfg.Recover(ctx, dst, addr)
	}
	return c.readFile(ctx, dst, addr)
}

// restore makes regions answer from their new places. rest says that one does not:
// a session that had not heard of the loss has written to it, and so its copy is none.
func (c *Cache) restore(kept, gone []place) (rest bool) {
	if o := c.observing(); o != nil {
		t := c.table.Load()
		for _, p := range append(gone, kept...) {
			o.restored(t.span(p.region))
		}
	}
	t := c.table.Load()
	back := func(places []place, dataLost bool) {
		var regions []int
		c.update(func(t *table) {
			for _, p := range places {
				if r := &t.regions[p.region]; !r.told && !c.hasCopy(r) {
					rest = true
				} else if p.link.grant.lost.Load() == nil {
					t.replace(p)
					regions = append(regions, p.region)
				}
			}
		})
		for _, span := range t.spans(regions) {
			c.watcher.report(t.event(Event{Kind: Restored, DataLost: dataLost}, span))
		}
	}
	back(kept, false)
	back(gone, true)
	return rest
}
