package cache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ssdtier"
)

// refillBlock is the size of the blocks of a plain copy.
const refillBlock = 256 << 10

// refillBench has the tiers of a RefillSpec, and what a plain copy needs.
type refillBench struct {
	spec   *RefillSpec
	mgr    redytier.Manager
	log    *slog.Logger
	remote *pausable
	tiers  *device.Tiered
	tail   int64  // of the log: its first quarter of a capacity is on the SSD only
	path   string // of the file

	plain   *redytier.Cache // of a plain copy
	session *redytier.Session
}

// openRefill makes the tiers, with a log that is larger than the cache by a quarter.
func openRefill(ctx context.Context, mgr redytier.Manager, s *RefillSpec, log *slog.Logger) (_ *refillBench, err error) {
	b := &refillBench{spec: s, mgr: mgr, log: log, path: filepath.Join(s.Dir, "file")}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := b.writeFile(); err != nil {
		return nil, err
	}
	ssd, err := ssdtier.OpenWith(filepath.Join(s.Dir, "log"), ssdtier.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	remote, err := redytier.Open(ctx, mgr, b.config())
	if err != nil {
		return nil, errors.Join(err, ssd.Close())
	}
	b.remote = &pausable{Device: remote, ready: make(chan struct{}, 1)}
	b.tiers = device.NewTieredWith(device.TieredOptions{Names: []string{"redy", "ssd"}, Logger: log}, b.remote, ssd)
	if err := b.tiers.Start(0); err != nil {
		return nil, err
	}
	if err := b.writeLog(ctx, s.Capacity+s.Capacity/4); err != nil {
		return nil, err
	}
	if b.plain, err = redytier.Create(ctx, mgr, b.config()); err != nil {
		return nil, err
	}
	b.session, err = b.plain.NewSession(1)
	return b, err
}

func (b *refillBench) config() redytier.Config {
	s := b.spec
	return redytier.Config{
		Capacity: s.Capacity, Transport: s.Transport, Net: s.Net, Logger: b.log, Progress: s.Pending,
		Configuration: redytier.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 1},
	}
}

func (b *refillBench) close() error {
	var errs []error
	if b.session != nil {
		errs = append(errs, b.session.Close())
	}
	if b.plain != nil {
		errs = append(errs, deleteCache(b.plain))
	}
	if b.tiers != nil {
		errs = append(errs, b.tiers.Close())
	}
	return errors.Join(errs...)
}

func deleteCache(c *redytier.Cache) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return c.Delete(ctx)
}

// writeFile writes the file that is copied.
func (b *refillBench) writeFile() (err error) {
	f, err := os.Create(b.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block, rng := make([]byte, refillBlock), rand.NewChaCha8([32]byte{})
	for at := int64(0); at < b.spec.Capacity; at += refillBlock {
		_, _ = rng.Read(block) // never fails
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}

// writeLog appends n bytes to the log.
func (b *refillBench) writeLog(ctx context.Context, n int64) (err error) {
	q, err := b.tiers.NewQueue(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	block, rng := device.AlignedBuffer(refillBlock, b.tiers.Alignment()), rand.NewChaCha8([32]byte{1})
	for ; b.tail < n; b.tail += refillBlock {
		_, _ = rng.Read(block) // never fails
		if err := device.Finish(ctx, q, q.Write(block, b.tail, 0)); err != nil {
			return err
		}
	}
	return b.tiers.Sync()
}

// copyFile copies the file to a cache.
func (b *refillBench) copyFile(ctx context.Context) (took time.Duration, err error) {
	f, err := os.Open(b.path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := bench.ForgetPages(f); err != nil {
		return 0, err
	}
	block := make([]byte, refillBlock)
	began := time.Now()
	for at := int64(0); at < b.spec.Capacity; at += refillBlock {
		if _, err := io.ReadFull(f, block); err != nil {
			return 0, err
		}
		if err := device.Finish(ctx, b.session, b.session.Write(block, at, 0)); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// pausable is a cache's device whose refill can be paused.
type pausable struct {
	*redytier.Device
	paused atomic.Bool
	ready  chan struct{}
}

// Hole implements device.Refiller.
func (d *pausable) Hole(below int64, n int) device.Hole {
	if d.paused.Load() {
		return device.Hole{}
	}
	return d.Device.Hole(below, n)
}

// HoleReady implements device.Refiller. Only this benchmark makes holes.
func (d *pausable) HoleReady() <-chan struct{} { return d.ready }

// pause pauses the refill, or continues it.
func (d *pausable) pause(paused bool) {
	d.paused.Store(paused)
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

// lose makes the cache lack all that it holds, and continues the refill.
func (b *refillBench) lose() error {
	err := b.remote.Start(b.tail)
	b.remote.pause(false)
	return err
}

// missing returns the bytes that the cache lacks.
func (b *refillBench) missing() int64 { return b.remote.Missing() }

// refilled waits until the cache lacks no more than that many bytes, and returns how long it
// waited.
func (b *refillBench) refilled(ctx context.Context, missing int64) (time.Duration, error) {
	began := time.Now()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		if b.missing() <= missing {
			return time.Since(began), nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// populate creates a cache with the file, which is not in the page cache, and returns how long it
// is filled.
func (b *refillBench) populate(ctx context.Context) (time.Duration, error) {
	f, err := os.Open(b.path)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(bench.ForgetPages(f), f.Close()); err != nil {
		return 0, err
	}
	config := b.config()
	config.File = b.path
	c, err := redytier.Create(ctx, b.mgr, config)
	if err != nil {
		return 0, err
	}
	return c.Metrics().PopulateTime, deleteCache(c)
}
