package redytier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// origin says that a region was filled from Config.File. Until it is written, its bytes can
// be read from there again (A46).
type origin struct{ written atomic.Bool }

// source provides the bytes of regions that are filled.
type source struct {
	read     func(ctx context.Context, dst []byte, addr int64) error
	parallel int // calls of read at a time
	close    func() error
}

// fileParallel is the number of VMs whose regions are filled from Config.File at a time.
const fileParallel = 4

// copies opens the copy of lost regions' bytes. Calls of Config.Recover do not overlap.
func (c *Cache) copies() (source, error) {
	if c.cfg.Recover == nil {
		return c.openFile()
	}
	return source{read: c.cfg.Recover, parallel: 1, close: func() error { return nil }}, nil
}

// openFile opens the cache's initial bytes.
func (c *Cache) openFile() (source, error) {
	f, err := os.Open(c.cfg.File)
	if err != nil {
		return source{}, err
	}
	read := func(_ context.Context, dst []byte, addr int64) error {
		n, err := f.ReadAt(dst, addr)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		clear(dst[n:])
		return err
	}
	return source{read: read, parallel: fileParallel, close: f.Close}, nil
}

// populateAll fills a new cache from the prefix of Config.File. The rest of the cache stays
// zeros.
func (c *Cache) populateAll(ctx context.Context) error {
	c.update((*table).fromFile)
	began := time.Now()
	err := c.fillFrom(ctx, c.openFile)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past.PopulateTime = time.Since(began)
	return err
}

// fillFrom fills a new cache with the bytes of a source.
func (c *Cache) fillFrom(ctx context.Context, open func() (source, error)) error {
	complete := map[int]bool{}
	return c.perform(ctx, true, func(ctx context.Context) error {
		var places []place
		for i, r := range c.table.Load().regions.all() {
			if r.endpoint == nil {
				return *r.cause
			}
			if !complete[i] { // a region that moves keeps its bytes
				places = append(places, place{region: i, endpoint: r.endpoint, index: r.index})
			}
		}
		done, err := c.populate(ctx, places, open)
		for _, f := range done {
			complete[f.at.region] = true
		}
		return err
	})
}

// populate fills regions at their places with what a source has for their addresses, those of
// several VMs at a time. It returns those that are complete.
func (c *Cache) populate(ctx context.Context, places []place, open func() (source, error)) (all []filled, err error) {
	if len(places) == 0 {
		return nil, nil
	}
	from, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	var mu sync.Mutex // guards all
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(from.parallel)
	for _, group := range byGrant(places) {
		work.Go(func() error {
			done, err := c.populateGrant(ctx, group, from.read)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, done...)
			return err
		})
	}
	err = work.Wait()
	return all, err
}

// byGrant returns places of each grant, in their order.
func byGrant(places []place) (groups [][]place) {
	numbers := map[*grant]int{}
	for _, p := range places {
		i, ok := numbers[p.endpoint.grant]
		if !ok {
			i = len(groups)
			numbers[p.endpoint.grant] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// populateGrant fills places in one grant, one after the other. It returns those that are
// complete.
func (c *Cache) populateGrant(ctx context.Context, places []place, read func(ctx context.Context, dst []byte, addr int64) error) (done []filled, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t, g := c.table.Load(), places[0].endpoint.grant
	p, err := c.openRegionWriter(ctx, g, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, at := range places {
		x := t.span(at.region)
		err := p.fill(ctx, at.index, 0, x.to-x.from, func(dst []byte, at int64) error { return read(ctx, dst, x.from+at) })
		if err != nil {
			return done, fmt.Errorf("populate [%d, %d) on VM %s: %w", x.from, x.to, g.vm, err)
		}
		done = append(done, filled{at})
	}
	return done, nil
}
