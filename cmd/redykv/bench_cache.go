package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/server"
	"github.com/redykv/redykv/ycsb"
)

// benchCacheFlags are the flags of bench cache.
type benchCacheFlags struct {
	spec              cachebench.Spec
	idle              string
	ops, sizes, modes []string
	configs, tunings  []string
	capacity          units.Size
	connect, raw      string
	noRaw             bool
	pinning           server.Pinning
	jsonPath          string
	log               logFlags
	sparse            sparseFlags
}

func newBenchCacheCmd() *cobra.Command {
	f := benchCacheFlags{capacity: 256 << 20, log: logFlags{level: slog.LevelWarn}}
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Measure a Redy cache, compared with its transport",
		Long: `Reads and writes a Redy cache at random addresses: each operation and size with each
configuration, by c threads that keep b x q requests pending each. The transport alone
(path fabric) is measured alternately, with one request in flight, and by c threads with
a queue pair each, with as many requests in flight as the cache has, and as many as it
has batches. The memory of these threads together is as large as the cache.

A configuration is c,s,b,q: client threads, server threads, requests in a batch, and
batches in flight on a connection. Batches of one are one-sided (s may be 0 then).

  session   each thread owns a session and polls it: run to completion
  callback  each thread hands requests to a client thread of the cache, which calls
            back

A manager runs in this process and starts the cache server as a second process (over
mem: in this one), unless --connect names a manager. In that case the transport is
measured only if --raw has the address of redykv bench fabric --listen.

The mean latency is the number in flight over the throughput; percentiles are of a
sample. Ratios are to rows of path fabric of the same run.

With --sparse, a large cache on many servers is measured instead, of which only one region
is written, so that it fits into this machine: the time to create it and to open a
session, the queue pairs and the memory of the client, how long a new region table takes
to reach all sessions, and the latency of other regions while the written one moves. The
machine needs memory for two regions. The manager and the two servers of the moving region
run in one process, the other servers in another; over mem all run in this one.`,
		Example: `  redykv bench cache --transport shm --net rdma --config 1,0,1,1 --size 8,4KiB
  redykv bench cache --transport tcp --config 1,1,64,16 --size 16 --op read,write
  redykv bench cache --sparse --capacity 1TiB --servers 256 --json out.json
  redykv bench cache --mode callback --config 1,1,1,1 --tuning locks+two-sided --tuning two-sided --tuning on`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.sparse.on || f.sparse.serve != "" {
				return f.runSparse(cmd)
			}
			return f.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network between client and server: "+fabric.ModelUsage)
	flags.StringSliceVar(&f.ops, "op", []string{"read", "write"}, "operations: "+bench.Names(cachebench.Ops)+", or mixed:95 for 95 % reads")
	flags.StringSliceVar(&f.sizes, "size", []string{"8", "64", "1KiB", "4KiB"}, "sizes of requests")
	flags.StringArrayVar(&f.configs, "config", []string{"1,0,1,1"}, "configuration `c,s,b,q`; may be given several times")
	flags.StringArrayVar(&f.tunings, "tuning", []string{"on"}, "on, or `switches` joined by + that change how a session works ("+cachebench.SwitchNames()+"); may be given several times")
	flags.Var(&f.pinning, "server-pinning", "whether each thread of the cache's servers is pinned to a processor: "+affinity.Modes())
	flags.StringSliceVar(&f.modes, "mode", []string{"session"}, "how requests are submitted: "+bench.Names(cachebench.Modes))
	flags.StringVar(&f.idle, "idle", "", "what an idle thread does: "+bench.Names(fabricbench.Idles)+" (default: wait over tcp and if more threads than processors would poll, otherwise poll)")
	flags.DurationVar(&f.spec.Duration, "duration", time.Second, "time of each measurement, all slices together")
	flags.Var(&f.capacity, "capacity", "size of the cache")
	flags.StringVar(&f.connect, "connect", "", "`URL` of a manager to allocate the cache from (default: one in this process)")
	flags.StringVar(&f.raw, "raw", "", "`address` of redykv bench fabric --listen, to measure the transport with --connect")
	flags.BoolVar(&f.noRaw, "no-raw", false, "do not measure the transport alone")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	f.log.add(flags)
	f.sparse.add(flags)
	return cmd
}

// parse sets the spec from the flags.
func (f *benchCacheFlags) parse() (err error) {
	s := &f.spec
	switch {
	case !slices.Contains(transport.Names(), s.Transport):
		return fmt.Errorf("unknown transport %q: want one of %s", s.Transport, strings.Join(transport.Names(), ", "))
	case s.Transport == mem.Name && (f.connect != "" || f.raw != ""):
		return errors.New("--connect and --raw: transport mem works within one process only")
	case f.connect != "" && f.pinning != server.PinAuto:
		return errors.New("--server-pinning: not possible with --connect, whose servers are already running")
	case f.noRaw && f.raw != "":
		return errors.New("--no-raw and --raw exclude each other")
	}
	if err := checkURL("--connect", f.connect); err != nil {
		return err
	}
	s.Capacity = int64(f.capacity)
	configs, err := parseAll(f.configs, cachebench.ParseConfig)
	if err != nil {
		return err
	}
	tunings, err := parseAll(f.tunings, cachebench.ParseTuning)
	if err != nil {
		return err
	}
	s.Variants = cachebench.Product(configs, tunings)
	for _, name := range f.ops {
		s.Ops = append(s.Ops, cachebench.Op(name))
	}
	for _, name := range f.modes {
		s.Modes = append(s.Modes, cachebench.Mode(name))
	}
	if s.Sizes, err = units.ParseSizes(f.sizes); err != nil {
		return err
	}
	if s.Idle = fabricbench.Idle(f.idle); f.idle == "" {
		s.Idle = s.DefaultIdle(runtime.NumCPU())
	}
	return s.Check()
}

func (f *benchCacheFlags) run(cmd *cobra.Command) error {
	if err := cmp.Or(f.sparse.check(cmd.Flags()), f.parse()); err != nil {
		return usageError{err}
	}
	if f.connect == "" {
		if err := checkMemory("--capacity", f.capacity); err != nil {
			return err
		}
	}
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) { return f.measure(cmd, p) })
}

func (f *benchCacheFlags) measure(cmd *cobra.Command, progress ycsb.Progress) (report *cachebench.Report, err error) {
	log := f.log.logger(cmd)
	raw, stop, err := f.startRaw(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	mgr, end, err := startCacheManager(cmd, f.connect, cachebench.Servers{Transport: f.spec.Transport, Pinning: f.pinning}, manager.EmbedOptions{Logger: log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	f.spec.Pending = newPending(cmd.ErrOrStderr())
	return cachebench.Run(cmd.Context(), mgr, raw, f.spec, log, progress)
}

// startRaw prepares the transport for the raw measurement, if there is one. stop ends what was
// started.
func (f *benchCacheFlags) startRaw(cmd *cobra.Command) (raw *cachebench.Raw, stop func() error, err error) {
	if f.noRaw || f.connect != "" && f.raw == "" {
		return nil, func() error { return nil }, nil
	}
	p, err := transport.Open(f.spec.Transport)
	if err != nil {
		return nil, nil, err
	}
	if f.raw != "" {
		return &cachebench.Raw{Provider: p, Addr: f.raw}, p.Close, nil
	}
	addr, end, err := startFabric(cmd, p, f.spec.RawMemory())
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	return &cachebench.Raw{Provider: p, Addr: addr}, func() error { return errors.Join(end(), p.Close()) }, nil
}
