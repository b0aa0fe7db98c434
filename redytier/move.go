package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
)

// maxParallel bounds Migration.Parallel, as a server bounds the pulls that wait.
const maxParallel = 1024

// Migration configures how regions move between VMs (6.2).
type Migration struct {
	// PauseReads holds the reads of a region, too, while it moves: the baseline of
	// figure 15.
	PauseReads bool
	// PauseAll holds the requests to all regions that move until the last has moved,
	// instead of region by region: the baseline of figure 16.
	PauseAll bool
	// Parallel is the number of regions that move at a time. A server copies 16 of them for a
	// grant at a time; more wait for their turns, and writes to them wait, too. At most 1024.
	// Default: 1, and 4 of a cache of [Open].
	Parallel int
	// BytesPerSecond limits the copying of each region. 0: no limit.
	BytesPerSecond int64
}

// place is a region's new place: region index of an endpoint's grant.
type place struct {
	region   int
	endpoint *endpoint
	index    uint32
}

// assign returns places for regions 0 to n-1 in the grants of endpoints, in order.
func assign(n int, endpoints []*endpoint) []place {
	var places []place
	for _, e := range endpoints {
		for i := range e.grant.tokens {
			if len(places) < n {
				places = append(places, place{region: len(places), endpoint: e, index: uint32(i)})
			}
		}
	}
	return places
}

// assignTo is assign for the given regions.
func assignTo(regions []int, endpoints []*endpoint) []place {
	places := assign(len(regions), endpoints)
	for i := range places {
		places[i].region = regions[i]
	}
	return places
}

// moveStats is how much has moved away from VMs, and how long that took. The manager's
// choice of spot VMs depends on it (A28).
type moveStats struct {
	bytes uint64
	took  time.Duration
}

// Migrate moves all regions of the cache away from VMs, to others that the manager chooses;
// requests continue (R77 to R82). It returns when the VMs hold nothing of the cache any more.
// If it fails or ctx ends, every region is at its old or its new place and answers, unless
// its server is lost. The handling of reclaimed and lost VMs comes first; Migrate then
// continues.
func (c *Cache) Migrate(ctx context.Context, vms ...string) error {
	err := c.perform(ctx, !c.cfg.RefuseBusy, func(ctx context.Context) error { return c.migrate(ctx, vms, false) })
	if err != nil {
		return fmt.Errorf("redytier: migrate from VM %s: %w", strings.Join(vms, ", "), err)
	}
	return nil
}

// migrate moves all regions away from VMs. A voluntary move was proposed by the manager; it
// fails if it is not worth it any more.
func (c *Cache) migrate(ctx context.Context, vms []string, voluntary bool) error {
	t := c.table.Load()
	var regions []int
	for _, g := range t.grants() {
		if slices.Contains(vms, g.vm) {
			regions = append(regions, t.on(g)...)
		}
	}
	slices.Sort(regions)
	if len(regions) == 0 {
		c.controller.lastSteps()
		return c.dropIdleGrants(ctx) // they may still have grants that were not returned before
	}
	return c.relocate(ctx, regions, &managerv1.ReallocateRequest{AvoidVms: vms, Voluntary: voluntary})
}

// relocate moves regions, in ascending order, to new memory. req says which memory.
func (c *Cache) relocate(ctx context.Context, regions []int, req *managerv1.ReallocateRequest) error {
	req.CacheId, req.Client, req.Regions, req.Moves = c.ID(), c.cfg.client(), uint32(len(regions)), runsOf(regions)
	endpoints, _, err := c.reallocate(ctx, req)
	if err != nil {
		return err
	}
	return c.leave(ctx, assignTo(regions, endpoints))
}

// leave moves regions to new places, returns all unused memory, and reports the VMs that the
// regions have left. Only a task calls it.
func (c *Cache) leave(ctx context.Context, places []place) error {
	t := c.table.Load()
	begin := time.Now()
	err := c.move(ctx, places, false)
	took := time.Since(begin)
	moved := make(map[string][]int) // by the VM that they left
	now := c.table.Load()
	for _, p := range places {
		if r := now.regions.at(p.region); r.endpoint != p.endpoint || r.index != p.index {
			continue // it did not move, or is lost
		}
		if from := t.regions.at(p.region).endpoint.grant.vm; from != p.endpoint.grant.vm {
			moved[from] = append(moved[from], p.region)
			c.moved.bytes += uint64(t.regionSize())
		}
	}
	if len(moved) > 0 {
		c.moved.took += took
	}
	if err == nil {
		c.controller.lastSteps()
	}
	err = errors.Join(err, c.returnUnused(ctx)) // the places of regions that did not arrive, too
	for vm, regions := range moved {
		for _, span := range t.spans(regions) {
			c.watcher.report(t.event(Event{Kind: VMLeft, VM: vm}, span))
		}
	}
	return err
}

// move copies regions to their new places, which become their mirrors or their only places,
// each when it is copied. If a region's source is lost it continues with the others; it stops
// at any other error.
func (c *Cache) move(ctx context.Context, places []place, mirror bool) error {
	if c.cfg.Migration.PauseAll {
		return c.moveTogether(ctx, places, mirror)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(max(1, c.cfg.Migration.Parallel))
	for _, p := range places {
		work.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return c.moveTogether(ctx, []place{p}, mirror)
		})
	}
	return work.Wait()
}

// moveTogether moves regions that are paused together: it waits until their new memory is ready,
// gates their writes, drains pending ones, copies each region, and switches the table. Sessions then
// release the requests that they held (A40).
func (c *Cache) moveTogether(ctx context.Context, places []place, mirror bool) error {
	if err := c.followRegions(ctx, places); err != nil {
		return err
	}
	if err := c.makeReady(ctx, places); err != nil {
		return err
	}
	moves := make([]*moving, len(places))
	var sources []*endpoint
	c.update(func(t *table) {
		for i, p := range places {
			if moves[i] = t.begin(p, c.gate()); moves[i] != nil {
				sources = append(sources, moves[i].from.endpoint)
			}
		}
	})
	moves = slices.DeleteFunc(moves, func(m *moving) bool { return m == nil }) // lost before
	err := c.quiesceWrites(ctx, sources...)
	copies := make([]pulled, len(moves))
	for i, m := range moves {
		if err == nil {
			copies[i], err = c.copyRegion(ctx, m)
		}
	}
	c.update(func(t *table) {
		for i, m := range moves {
			if t.arrive(copies[i], mirror) {
				continue
			}
			if t.stay(m); copies[i].move != nil {
				err = errors.Join(err, alive([]*endpoint{m.to.endpoint}))
			}
		}
	})
	return err
}

// makeReady waits until the regions' new memory is ready, while requests to them continue, but no
// longer than for a server's answer. A server that cannot prepare its memory fails the copy, too:
// makeReady only fails if ctx ends.
func (c *Cache) makeReady(ctx context.Context, places []place) error {
	t := c.table.Load()
	bounded, cancel := clock.WithAwakeTimeout(ctx, c.cfg.ServerTimeout, context.DeadlineExceeded)
	defer cancel()
	for _, to := range places {
		r := t.regions.at(to.region)
		if r.state != Stable {
			continue // lost
		}
		req := c.pullRequest(place{region: to.region, endpoint: r.endpoint, index: r.index}, to)
		req.Prepare = true
		_ = to.endpoint.grant.whileAlive(bounded, func(ctx context.Context) error {
			stream, err := to.endpoint.grant.control().Pull(ctx, connect.NewRequest(req))
			if err != nil {
				return err
			}
			for stream.Receive() {
			}
			return stream.Close()
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// pullRequest returns the request for the target's server.
func (c *Cache) pullRequest(from, to place) *serverv1.PullRequest {
	source, target := from.endpoint.grant, to.endpoint.grant
	token, reading := source.tokens[from.index], source.ticket.Reading()
	return &serverv1.PullRequest{
		CacheId: target.cache, Grant: target.id, Ticket: target.ticket[:],
		FabricAddr: source.fabricAddr, SourceTicket: reading[:], Source: target.sources[source.fabricAddr],
		Regions:        []*serverv1.PullRegion{{SourceToken: token[:], Target: to.index, Bytes: uint64(c.RegionSize())}},
		BytesPerSecond: uint64(c.cfg.Migration.BytesPerSecond),
		Net:            c.cfg.network.At(source.distance).String(),
	}
}

// gate returns the kinds of requests that are held while a region moves.
func (c *Cache) gate() gate {
	if c.cfg.Migration.PauseReads {
		return holdWrites | holdReads
	}
	return holdWrites
}

// copyRegion lets the target's server pull one region. A lost source is no error of the move:
// the region is then lost.
func (c *Cache) copyRegion(ctx context.Context, m *moving) (p pulled, err error) {
	c.update(func(t *table) { t.copy(m) })
	source, target := m.from.endpoint.grant, m.to.endpoint.grant
	err = target.whileAlive(ctx, func(ctx context.Context) error {
		p, err = c.pull(ctx, m)
		return err
	})
	if err == nil {
		return p, nil
	}
	if source.lost.Load() == nil && ctx.Err() == nil {
		// Either server may have failed. A source that does not answer is lost.
		if check := c.probe(ctx, source); check != nil && ctx.Err() == nil &&
			!c.inconclusive(ctx, source, check, new(int)) && !c.readsWell(ctx, source) && ctx.Err() == nil {
			c.lose(source, errors.Join(err, check))
		}
	}
	if source.lost.Load() != nil {
		return pulled{}, nil
	}
	return pulled{}, err
}

// pulled is the proof that a region's new place has all of its bytes, made by pull only. The
// zero value proves nothing.
type pulled struct{ move *moving }

// pull lets the target's server read the region from the source's memory.
func (c *Cache) pull(ctx context.Context, m *moving) (p pulled, err error) {
	source, target := m.from.endpoint.grant, m.to.endpoint.grant
	defer func() {
		if err != nil {
			err = fmt.Errorf("VM %s pulls region %d from VM %s: %w", target.vm, m.to.region, source.vm, err)
		}
	}()
	stream, err := target.control().Pull(ctx, connect.NewRequest(c.pullRequest(m.from, m.to)))
	if err != nil {
		return pulled{}, err
	}
	for stream.Receive() {
		m.copied.Store(int64(stream.Msg().GetCopied()))
	}
	if err = errors.Join(stream.Err(), stream.Close()); err != nil {
		return pulled{}, err
	}
	if n := m.copied.Load(); n != c.RegionSize() {
		return pulled{}, fmt.Errorf("%d of %d bytes copied", n, c.RegionSize())
	}
	return pulled{m}, nil
}
