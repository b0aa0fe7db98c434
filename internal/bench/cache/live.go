package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/redytier"
)

// LiveSpec describes a live cache that is measured.
type LiveSpec struct {
	Transport string
	Net       string // the model of the network in between, as redytier.Config.Net
	// SLO selects the first configuration, unless Configuration is set. The cache's
	// servers have as many cores as the first configuration needs.
	SLO           redytier.SLO
	Configuration redytier.Configuration

	Capacity int64            // bytes, at least MinCapacity
	Mode     Mode             // of the threads
	Idle     fabricbench.Idle // what an idle thread does
	Log      *slog.Logger
	Pending  func([]string) // redytier.Config.Progress
}

// Live is a cache that is measured in one configuration after another (figure 9). It
// belongs to one goroutine.
type Live struct {
	spec  LiveSpec
	cache *redytier.Cache
}

// OpenLive makes a cache and fills it. The caller closes it.
func OpenLive(ctx context.Context, mgr redytier.Manager, spec LiveSpec) (*Live, error) {
	c, err := redytier.Create(ctx, mgr, redytier.Config{
		Capacity: spec.Capacity, SLO: spec.SLO, Configuration: spec.Configuration,
		Transport: spec.Transport, Net: spec.Net, Logger: spec.Log, Progress: spec.Pending,
	})
	if err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	l := &Live{spec: spec, cache: c}
	if err := fill(ctx, c); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close deletes the cache.
func (l *Live) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return l.cache.Delete(ctx)
}

// Configuration returns the cache's present configuration.
func (l *Live) Configuration() redytier.Configuration { return l.cache.Configuration() }

// Switch changes the cache's configuration (R69).
func (l *Live) Switch(ctx context.Context, c redytier.Configuration) error {
	if c == l.Configuration() {
		return nil
	}
	return l.cache.Reconfigure(ctx, c)
}

// Measure measures operations on records of that many bytes in the cache's present
// configuration, with as many requests in flight as it has room for (A15). Each operation
// gets that many slices, alternately, and its sample is all of them. A warm-up of a quarter of
// that time comes first: a new cache is slow until its server and the kernel have touched its
// memory.
func (l *Live) Measure(ctx context.Context, size int, ops []Op, slice time.Duration, slices int) (samples []bench.Sample, err error) {
	config := l.Configuration()
	threads, err := newThreads(l.spec.Mode, &Spec{Sizes: []int{size}, Idle: l.spec.Idle}, l.cache, config)
	defer func() { err = errors.Join(err, closeAll(threads)) }()
	if err != nil {
		return nil, err
	}
	plan := bench.Plan{Cells: len(ops), Rounds: slices, Slice: slice, Warmup: slice * time.Duration(slices) / 4}
	all, err := plan.Run(ctx, nil, func(ctx context.Context, i, _ int, lasts time.Duration) (bench.Sample, error) {
		c := cell{path: pathRedy, mode: l.spec.Mode, config: config, op: ops[i], size: size, threads: threads}
		return c.slice(ctx, lasts)
	})
	if err != nil {
		return nil, fmt.Errorf("cachebench: configuration %s: %w", ConfigString(config), err)
	}
	for _, some := range all {
		samples = append(samples, bench.Pool(some))
	}
	return samples, nil
}
