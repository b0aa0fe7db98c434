package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/prom"
	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ssdtier"
	"github.com/redykv/redykv/ycsb"
)

// Values of --redy that are no manager's address.
const (
	redyNone     = "none"
	redyEmbedded = "embedded"
)

type serveFlags struct {
	addr        string
	dir         string
	memory      units.Size
	records     int64
	redy        string
	cache       units.Size
	transport   string
	refillRate  units.Size
	commitEvery time.Duration
	maxClients  int
	maxBulk     units.Size
	metrics     string
	tls         tlsFlags
	access      accessFlags
	log         logFlags
}

func newServeCmd() *cobra.Command {
	f := serveFlags{
		memory: 1 << 30, cache: 1 << 30, refillRate: device.DefaultRefillRate, maxBulk: resp.DefaultMaxBulk,
		log: logFlags{level: slog.LevelInfo},
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a store to Redis clients",
		Long: `Runs a store as a server of the Redis protocol until it is interrupted; then it
answers what it has read, commits and closes. A line on standard output says when
it is ready. There is no authentication yet: listen where only friends connect.

The store is in --dir, and in --memory as far as that goes. A Redy cache between
the two keeps the log's newest part in remote memory:

  --redy none       no such cache
  --redy embedded   a cache server process of this machine, ended with the server
  --redy HOST:PORT  from the manager there (redykv manager), also as a URL

What clients wrote is durable once it was committed, which happens every
--commit-every. After a crash the store is as it was at some moment since the
start of the last commit but one, at worst: by default, about one second is lost.
With --commit-every 0 it is committed only when the server is stopped, and a crash
loses everything since the start. A commit makes what is in memory read-only, so
that the next update of each record writes it anew: more commits, a longer log.`,
		Example: `  redykv serve --dir data --memory 1GiB --redy embedded --cache 8GiB
  redis-cli -p 6380 set greeting hello`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.addr, "addr", "127.0.0.1:6380", "address to answer at")
	flags.StringVar(&f.dir, "dir", "data", "directory of the store on the SSD; made if it is not there")
	flags.Var(&f.memory, "memory", "log kept in local memory; the index comes beside it")
	flags.Int64Var(&f.records, "records", 10_000_000, "keys to expect: the index is made for them and does not grow")
	flags.StringVar(&f.redy, "redy", redyNone, "remote memory above the SSD: none, embedded, or a manager's address")
	flags.Var(&f.cache, "cache", "size of the remote memory")
	flags.StringVar(&f.transport, "transport", "", "how remote memory is reached: "+strings.Join(transport.BetweenProcesses(), ", ")+" (default shm, or as the manager has it)")
	flags.Var(&f.refillRate, "refill-rate", "bytes a second at most to bring back from the SSD what remote memory lacks, after a start or a loss; 0: none")
	flags.DurationVar(&f.commitEvery, "commit-every", time.Second, "how often to make what was written durable; 0: only at the end")
	flags.IntVar(&f.maxClients, "max-clients", resp.DefaultMaxClients, "connections at once")
	flags.Var(&f.maxBulk, "max-bulk", "largest argument, and so value, that a client may send")
	flags.StringVar(&f.metrics, "metrics", "", "address to answer at over HTTP: /metrics for Prometheus, / for people (default: nowhere)")
	f.tls.add(flags)
	f.access.add(flags)
	f.log.add(flags)
	return cmd
}

// check refuses what is to be mended at the command line.
func (f *serveFlags) check() error {
	if err := checkListen("--addr", f.addr); err != nil {
		return err
	}
	if f.metrics != "" {
		if err := checkListen("--metrics", f.metrics); err != nil {
			return err
		}
	}
	shape, on := ycsb.Shape{Records: f.records, Memory: int64(f.memory)}, ycsb.SSD
	switch f.redy {
	case redyNone:
	case redyEmbedded:
		shape.Cache, on = int64(f.cache), ycsb.Redy
	default:
		if err := checkURL("--redy", f.redy); err != nil {
			return err
		}
	}
	switch {
	case f.memory < 1 || f.records < 1:
		return usagef("--memory %v --records %d: want something", f.memory, f.records)
	case f.redy != redyNone && f.cache < redytier.MinRegionSize:
		return usagef("--cache %v: want %v or more", f.cache, units.Size(redytier.MinRegionSize))
	case f.tls != (tlsFlags{}) && (f.redy == redyNone || f.redy == redyEmbedded):
		return usagef("--redy %s --tls-cert: only the connections to a manager's cache servers are encrypted", f.redy)
	case f.transport != "" && !slices.Contains(transport.BetweenProcesses(), f.transport):
		return usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.commitEvery < 0 || f.commitEvery > 0 && f.commitEvery < time.Millisecond:
		return usagef("--commit-every %v: want 1ms or more, or 0 for never", f.commitEvery)
	case f.maxClients < 1:
		return usagef("--max-clients %d: want at least 1", f.maxClients)
	case f.maxBulk < 1 || f.maxBulk > resp.MaxMaxBulk:
		return usagef("--max-bulk %v: want 1B to %v", f.maxBulk, units.Size(resp.MaxMaxBulk))
	}
	if need, have := shape.MemoryOn(on), mem.Total(); have > 0 && need > float64(have) {
		return usagef("--memory, --cache and the index for --records need %v together, and this machine has %v",
			units.Size(min(need, 1<<62)), units.Size(have))
	}
	return nil
}

// openDevice opens the store's files, and remote memory above them. The caller
// closes the device, and calls release after that.
func (f *serveFlags) openDevice(ctx context.Context, log *slog.Logger) (dev device.Device, release func() error, err error) {
	release = func() error { return nil }
	if f.redy == redyEmbedded {
		storage, err := ycsb.OpenStorage(ctx, ycsb.Redy, ycsb.Shape{Cache: int64(f.cache), Transport: f.transport, Net: "none", RefillRate: f.refill()}, f.dir)
		if err != nil {
			return nil, nil, err
		}
		return storage.Device, storage.Release, nil
	}
	ssd, err := ssdtier.OpenWith(f.dir, ssdtier.Options{Logger: log})
	if err != nil || f.redy == redyNone {
		return ssd, release, err
	}
	mgr, err := f.access.dial(f.redy)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--redy %s: %w", f.redy, err), ssd.Close())
	}
	var redy *redytier.Device
	config, err := f.tls.config()
	if err == nil {
		redy, err = redytier.Open(ctx, mgr, redytier.Config{
			Capacity: int64(f.cache), Transport: f.transport, FabricTLS: config, Logger: log,
		})
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--redy %s: %w", f.redy, err), ssd.Close())
	}
	return device.NewTieredWith(device.TieredOptions{
		Names: []string{"redy", "ssd"}, RefillRate: f.refill(), Logger: log,
	}, redy, ssd), release, nil
}

// refill is --refill-rate as devices have it.
func (f *serveFlags) refill() int64 {
	if f.refillRate == 0 {
		return -1
	}
	return int64(f.refillRate)
}

func runServe(cmd *cobra.Command, f serveFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	ctx, log := cmd.Context(), f.log.logger(cmd)
	// Before the store, which may take long to open, so that a port in use is
	// noticed at once.
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.addr)
	if err != nil {
		return err
	}
	metrics, err := listenMetrics(ctx, f.metrics, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer metrics.close()
	dev, release, err := f.openDevice(ctx, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer func() { err = errors.Join(err, release()) }()
	store, err := kv.Open(kv.Options{
		Device: dev, Memory: int64(f.memory), Records: f.records, Logger: log, Events: kv.LogEvents(log),
	})
	if err != nil {
		return errors.Join(err, dev.Close(), ln.Close())
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return f.serve(ctx, cmd, store, ln, metrics.serve(prom.NewCollector(store, nil), func() string { return store.Metrics().String() }), log)
}

// serve answers until ctx ends, and commits now and then. When it is ready it says
// so, and where else.
func (f *serveFlags) serve(ctx context.Context, cmd *cobra.Command, store *kv.Store, ln net.Listener, elsewhere string, log *slog.Logger) error {
	server := resp.NewServer(store, resp.Options{MaxClients: f.maxClients, MaxBulk: int(f.maxBulk), Logger: log})
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	fmt.Fprintf(cmd.OutOrStdout(), "redykv ready at %s%s\n", ln.Addr(), elsewhere)

	err := f.commitUntil(ctx, store, served, log)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if late := server.Shutdown(ctx); late != nil {
		log.Warn("clients were cut off", "err", late)
	}
	return err
}

// commitUntil commits as often as asked until ctx ends or the server has failed.
func (f *serveFlags) commitUntil(ctx context.Context, store *kv.Store, served <-chan error, log *slog.Logger) error {
	var due <-chan time.Time
	if f.commitEvery > 0 {
		ticker := time.NewTicker(f.commitEvery)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case <-due:
			if err := store.Commit(ctx); err != nil && ctx.Err() == nil {
				log.Error("what was written lately is not durable", "err", err)
			}
		}
	}
}
