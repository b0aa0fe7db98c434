package redytier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/clock"
)

// deviceRegion is the largest region that Open chooses by default, except for caches of more than
// a thousand such regions. While a region moves, a log that is written there waits, and soon its
// writers do: it takes a second to copy this much over a slow network.
const deviceRegion = 128 << 20

// deviceParallel is Open's default of Migration.Parallel. One copy at a time gets a small part of
// the processors of a busy machine.
const deviceParallel = 4

// Open creates a cache and returns a device over it. Closing the device deletes
// the cache. By default its regions have at most 128 MiB, or about a thousandth of the cache, and
// four of them move at a time.
//
// With Config.Companion and Config.Linger, Open takes up the cache of an earlier process, if
// there is one of the same capacity. It holds what is still there of the log that Start continues:
// its pieces are checked in the background, the newest first, but before them those that are read,
// and answer when they are right. Closing the device leaves the cache to the next process.
func Open(ctx context.Context, mgr Manager, cfg Config) (*Device, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.largestRegion = max(deviceRegion, defaultRegionSize(cfg.Capacity/256))
	cfg.Migration.Parallel = cmp.Or(cfg.Migration.Parallel, deviceParallel)
	var former *companionState
	if cfg.Companion != nil {
		former = cfg.formerCache(ctx, mgr)
	}
	cache, err := cfg.takeUp(ctx, mgr, former)
	if err == nil && cache == nil && cfg.MustTakeUp {
		err = fmt.Errorf("%w: there is none of %d bytes that lingers", ErrNotTakenUp, cfg.Capacity)
	}
	if err != nil {
		return nil, err
	}
	if cache == nil {
		former = nil
		if cache, err = Create(ctx, mgr, cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Linger == 0 {
		cfg.Companion = nil
	}
	d := newDevice(cache, cfg.Companion, cfg.Journal)
	d.owned = true
	if p := d.pieces; p != nil {
		if former != nil && former.fits(p) {
			p.adopt(former.Lives)
		}
		p.run()
	}
	return d, nil
}

// formerCache returns what an earlier process has kept, if its cache can be taken up. A cache that
// is not wanted is returned to the manager.
func (c *Config) formerCache(ctx context.Context, mgr Manager) *companionState {
	log := c.Logger
	data, err := c.Companion.ReadCompanion()
	if err == nil && len(data) == 0 {
		return nil
	}
	var former *companionState
	if err == nil {
		former, err = parseCompanion(data)
	}
	if err != nil {
		log.Warn("the cache of before the restart is not known", "err", err)
		return nil
	}
	if c.Linger > 0 && former.Cache.Capacity == c.Capacity {
		return former
	}
	if c.MustTakeUp {
		return nil
	}
	log.Info("the cache of before the restart is returned", "cache", former.Cache.Cache, "capacity", former.Cache.Capacity)
	if former.tryDiscard(ctx, mgr, log) {
		if err := c.Companion.WriteCompanion(nil); err != nil {
			log.Warn("the record of the cache of before the restart cannot be erased", "err", err)
		}
	}
	return nil
}

// tryDiscard returns the cache to the manager. It waits at most controlTimeout for a manager that is
// silent.
func (s *companionState) tryDiscard(ctx context.Context, mgr Manager, log *slog.Logger) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	err := s.Cache.Discard(ctx, mgr)
	if err != nil {
		log.Warn("the manager keeps the cache of before the restart until its time has ended", "err", err)
	}
	return err == nil
}

// attachPause is the time between two attempts to take a cache up.
const attachPause = 500 * time.Millisecond

// takeUp takes up the cache of an earlier process. It returns nil if there is none any more, or
// if that is not possible within controlTimeout.
func (c *Config) takeUp(ctx context.Context, mgr Manager, former *companionState) (*Cache, error) {
	if former == nil {
		return nil, nil
	}
	cfg, log, began := *c, c.Logger.With("cache", former.Cache.Cache), time.Now()
	cfg.Attach = &former.Cache
	trying, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for {
		cache, err := Create(trying, mgr, cfg)
		switch {
		case err == nil:
			log.Info("the cache of before the restart is taken up", "took", time.Since(began))
			return cache, nil
		case ctx.Err() != nil || isDistrust(err): // a mistake in the configuration costs no contents
			return nil, err
		case c.MustTakeUp && (errors.Is(err, ErrNoCache) || !isTemporary(err) || !clock.Sleep(trying, attachPause)):
			return nil, fmt.Errorf("%w: cache %s: %w", ErrNotTakenUp, former.Cache.Cache, err)
		case c.MustTakeUp:
		case errors.Is(err, ErrNoCache):
			log.Info("the cache of before the restart is gone: a new one is created", "err", err)
			return nil, nil
		case !isTemporary(err) || !clock.Sleep(trying, attachPause):
			log.Warn("the cache of before the restart cannot be taken up: a new one is created", "err", err)
			// Its memory is whole if the time was too short, and another client's if that has taken it up.
			if trying.Err() == nil && !errors.Is(err, ErrTaken) {
				former.tryDiscard(ctx, mgr, log)
			}
			return nil, nil
		}
	}
}

// Close implements device.Device. It is no error if the manager does not answer: the servers
// have been told, and the cache's lease ends.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	var err error
	if d.journal != nil {
		err = d.journal.close()
	}
	if !d.owned {
		return err
	}
	return errors.Join(err, d.giveUp())
}

// giveUp deletes the cache, or leaves it to the next process.
func (d *Device) giveUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	if p := d.pieces; p != nil {
		return d.leave(ctx, p)
	}
	err := d.cache.Delete(ctx)
	switch {
	case errors.Is(err, ErrDeleted):
		return nil
	case connect.CodeOf(err) == connect.CodeUnavailable:
		d.cache.log.Warn("the manager does not answer: it keeps the cache until its lease ends, if it has one", "err", err)
		return nil
	}
	return err
}

// leave writes the last records and leaves the cache to the next process. One that has no memory
// yet is deleted.
func (d *Device) leave(ctx context.Context, p *pieces) error {
	p.close(ctx)
	linger := d.cache.Linger()
	if d.cache.Identity() == (Identity{}) {
		return d.cache.Delete(ctx)
	}
	switch err := d.cache.Detach(ctx); {
	case errors.Is(err, ErrDeleted):
	case err != nil: // it has ended nevertheless
		d.cache.log.Warn("the cache may not be taken up as a whole after a restart", "err", fmt.Errorf("leaving it: %w", err))
	default:
		d.cache.log.Info("the cache is left to the next process", "linger", linger)
	}
	return nil
}
