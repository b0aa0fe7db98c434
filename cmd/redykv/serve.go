package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/cmd/redykv/internal/settings"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
)

// servePrefix begins the names of environment variables for serve's flags.
const servePrefix = "REDYKV_"

// serveFlags are the flags of serve, and its whole configuration.
type serveFlags struct {
	config string
	print  bool

	listen     listenFlags
	clients    clientFlags
	storage    storageFlags
	durability durabilityFlags

	admin           string
	shutdownTimeout time.Duration
	log             logFlags
}

func newServeCmd() *cobra.Command {
	f := newServeFlags()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a store to Redis clients",
		Long: `Runs a store as a server of the Redis protocol until it is interrupted; it then
answers the commands that it has read, commits and closes. It prints a line when
it is ready.

Each flag can also be set in the environment (--max-clients as REDYKV_MAX_CLIENTS)
and in the YAML file of --config (as max-clients). The command line overrides the
environment, and the environment overrides the file. --print-config prints the
effective settings in the format of that file.

Without a password only clients of this machine are served, unless --protected-mode
is off. --requirepass sets the password of the default user; --user and --users-file
define users with rules as in Redis.

The store's log is in --dir, its newest part in --memory. A Redy cache between the
two keeps more of the newest part in remote memory:

  --redy none       no such cache
  --redy embedded   in a cache server process on this machine, ended with the server
  --redy HOST:PORT  from the manager at that address (redykv manager), or at a URL

--durability sets what survives a crash:

  always    every answered write; replies to writes wait for the disk, and share
            commits
  everysec  all but at most the last second of answered writes; the store is in the
            state of one moment
  none      all writes since the start may be lost; a server that is stopped loses nothing

A write is durable when it has reached --commit-point: ssd, or redy. With redy, writes
do not wait for the SSD, and the loss of a cache server can lose some. Checkpoints copy
the index, so that a large store opens fast, and can be recovered to. Compaction removes
overwritten records from the log, a part at a time.`,
		Example: `  redykv serve --dir data --memory 1GiB --redy embedded --cache 8GiB
  redis-cli -p 6380 set greeting hello
  redykv serve --config /etc/redykv/serve.yaml --print-config`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.load(cmd); err != nil {
				return usageError{err}
			}
			if f.print {
				return settings.Print(cmd.OutOrStdout(), cmd.Flags())
			}
			return runServe(cmd, f)
		},
	}
	f.add(cmd)
	return cmd
}

func newServeFlags() *serveFlags {
	return &serveFlags{
		clients: newClientFlags(), storage: newStorageFlags(), durability: newDurabilityFlags(),
		log: logFlags{level: slog.LevelInfo},
	}
}

func (f *serveFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	f.listen.add(flags)
	f.clients.add(flags)
	f.storage.add(flags)
	f.durability.add(flags)
	flags.StringVar(&f.admin, "admin", "", "HTTP address for operators: /metrics for Prometheus and redykv top, / for a table of metrics, /mrc, /healthz, /readyz, /debug/pprof/ (default: off)")
	flags.DurationVar(&f.shutdownTimeout, "shutdown-timeout", 10*time.Second, "maximum time for clients to read their last replies when the server is stopped")
	f.log.add(flags)
	f.log.addFormat(flags)
	flags.StringVar(&f.config, "config", "", "YAML `FILE` with settings")
	flags.BoolVar(&f.print, "print-config", false, "print the effective settings in the format of --config, and exit")
	settings.Local.Set(flags, "config", "print-config")
	settings.Secret.Set(flags, "requirepass", "user")
	settings.Own.Set(flags, "manager-token") // the environment variable holds the token, not a file's path
}

// load sets the flags that are not on the command line.
func (f *serveFlags) load(cmd *cobra.Command) error {
	if err := settings.FromEnvironment(cmd.Flags(), servePrefix); err != nil {
		return err
	}
	if f.config != "" {
		if err := settings.FromFile(cmd.Flags(), f.config); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	return cmp.Or(f.check(), checkNeeds(cmd.Flags(), f.needs()))
}

// check returns an error for a bad configuration.
func (f *serveFlags) check() error {
	if f.shutdownTimeout < 0 {
		return usagef("--shutdown-timeout %v: want 0 or more", f.shutdownTimeout)
	}
	if f.storage.kind == storageMemory && f.durability.promise == resp.DurabilityAlways {
		return usagef("--storage memory keeps nothing durable: --durability always is not possible")
	}
	return cmp.Or(checkOptional("--admin", f.admin), f.listen.check(), f.clients.check(), f.storage.check(), f.durability.check(), f.log.check())
}

// heapBase is what Go's heap takes beside the budgets of clients.
const heapBase = 64 << 20

// heapLimit returns the limit for Go's heap within the memory that this process may use, and a warning if
// what clients may take does not fit there. total is 0 if it is not known; then there is no limit.
func heapLimit(total int64, mapped, budgets float64) (limit int64, warning string) {
	if total <= 0 {
		return math.MaxInt64, ""
	}
	// The kernel's buffers, stacks and what the collector is late with need some of it, too.
	left, least := 0.9*(float64(total)-mapped), budgets+heapBase
	if left >= least {
		return int64(left), ""
	}
	return int64(least), fmt.Sprintf("clients may take more memory than there is: lower --memory, --records, --request-memory or --reply-memory by %v", units.Size(least-left))
}

// limitHeap sets the limit of Go's heap, unless GOMEMLIMIT has.
func (f *serveFlags) limitHeap(log *slog.Logger) {
	total, mapped := mem.Total(), f.storage.mapped()
	limit, warning := heapLimit(total, mapped, float64(f.clients.requests)+float64(f.clients.replies))
	if warning != "" {
		log.Warn(warning, "machine", units.Size(total), "store", units.Size(mapped), "requests", f.clients.requests, "replies", f.clients.replies)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
		log.Debug("limit of Go's heap", "bytes", limit)
	}
}

func runServe(cmd *cobra.Command, f *serveFlags) (err error) {
	// SIGHUP is ignored, as by Redis: a closed terminal must not stop the server, nor a script
	// that expects the signal to reload the configuration.
	signal.Ignore(syscall.SIGHUP)
	outliveReaders()
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	level := new(slog.LevelVar)
	level.Set(f.log.level)
	log := f.log.loggerAt(cmd, level)
	for _, name := range settings.Unknown(cmd.Flags(), servePrefix) {
		log.Warn("unknown environment variable, ignored", "variable", name)
	}
	f.limitHeap(log)
	opts := f.clients.options()
	if opts.Users, err = f.listen.access(); err != nil {
		return err
	}
	if opts.MaxClients, err = f.fitClients(log); err != nil {
		return err
	}
	opts.ProtectedMode, opts.Durability, opts.Logger = f.listen.protected, f.durability.promise, log
	// Listen before the store is opened, which may take long: a port in use is reported at once, and
	// clients are told that the server is loading.
	listeners, err := f.listen.listen(ctx, log)
	if err != nil {
		return err
	}
	admin, err := listenAdmin(ctx, f.admin, log)
	if err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	defer admin.close()
	compaction, eviction := f.durability.compactionPolicy(), kv.Eviction{}
	if size := int64(f.storage.maxData); size != 0 {
		opts.Cache = resp.NewCacheMode(size, max(f.storage.records, size>>10))
		// Compaction would copy keys that were not used.
		compaction, eviction = kv.AutoCompaction{}, opts.Cache.Eviction()
	}
	var opened atomic.Pointer[kv.Store]
	opts.Shutdown, opts.Settings = stop, f.settings(opened.Load, listeners, level)
	server := resp.NewServer(nil, opts)
	served := make(chan error, len(listeners))
	for _, ln := range listeners {
		go func() {
			defer stop() // nothing goes on without one of the listeners
			served <- server.Serve(ln.Listener)
		}()
	}
	defer func() {
		err = errors.Join(err, server.Close())
		for range listeners {
			err = errors.Join(err, <-served)
		}
	}()
	dev, bucket, release, err := f.storage.open(ctx, log)
	if err != nil {
		return unlessStopped(ctx, err, log)
	}
	defer func() { err = errors.Join(err, release()) }()
	recovering, drawn := drawOpening(newProgress(cmd.ErrOrStderr()))
	store, err := kv.OpenContext(ctx, kv.Options{
		CountKeys: true, KeyClass: resp.KeyClass, Inner: resp.Inner, Orphans: resp.Orphans,
		Device: dev, Memory: int64(f.storage.memory), Records: f.storage.records, ReadCache: f.storage.readCache, SampleAccesses: f.storage.sample,
		Checkpoints: f.durability.policy(f.storage.kind), Compaction: compaction, Eviction: eviction,
		Logger: log,
		Events: kv.Tee(kv.LogEvents(log), kv.EventListener{Recovering: recovering}, kv.EventListener{
			Recovering: func(i kv.RecoveringInfo) { server.Loading(i.Read, i.Bytes) },
		}),
	})
	drawn()
	if errors.Is(err, kv.ErrOpening) { // it has the device
		release = func() error { return nil }
		return unlessStopped(ctx, err, log)
	}
	if err != nil {
		return errors.Join(unlessStopped(ctx, err, log), dev.Close())
	}
	defer func() { err = errors.Join(err, f.durability.close(store, log)) }()
	opened.Store(store)
	server.Opened(store)
	admin.opened(servedStore{server, store, bucket})
	f.serve(ctx, cmd, server, listeners, admin, log)
	return nil
}

// unlessStopped returns an error of the opening of the store, or nil if the end of ctx is its reason.
func unlessStopped(ctx context.Context, err error, log *slog.Logger) error {
	if cause := context.Cause(ctx); cause == nil || !errors.Is(err, cause) {
		return err
	}
	log.Info("the server was stopped while it opened the store")
	return nil
}

// serve serves until ctx ends, and then sends the last replies. It prints a line with its addresses when
// it is ready.
func (f *serveFlags) serve(ctx context.Context, cmd *cobra.Command, server *resp.Server, listeners []listener, admin *admin, log *slog.Logger) {
	admin.setUnready("")
	fmt.Fprintf(cmd.OutOrStdout(), "redykv ready at %s%s\n", where(listeners), admin.where())
	notify(log, "READY=1")
	<-ctx.Done()
	notify(log, "STOPPING=1")
	admin.setUnready("the server is being stopped")
	log.Info("the server is being stopped", "timeout", f.shutdownTimeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.shutdownTimeout)
	defer cancel()
	if late := server.Shutdown(ctx); late != nil {
		log.Warn("connections were closed before their last replies were sent", "err", late)
	}
}

func closeAll(listeners []listener) error {
	var errs []error
	for _, ln := range listeners {
		errs = append(errs, ln.Close())
	}
	return errors.Join(errs...)
}
