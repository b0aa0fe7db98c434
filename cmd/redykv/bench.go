package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	durablebench "github.com/redykv/redykv/internal/bench/durable"
	storebench "github.com/redykv/redykv/internal/bench/store"
	tailsbench "github.com/redykv/redykv/internal/bench/tails"
	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

func newBenchCmd() *cobra.Command {
	return newGroup("bench", "Measure parts of redykv, compared with the machine's limits",
		newBenchStoreCmd(), newBenchFabricCmd(), newBenchCacheCmd(), newBenchMigrateCmd(), newBenchRefillCmd(), newBenchRestartCmd(), newBenchOpenCmd(),
		newBenchDeviceCmd(), newBenchManagerCmd(), newBenchAdviseCmd())
}

// benchStoreFlags are the flags of bench store.
type benchStoreFlags struct {
	spec                      storebench.Spec
	valueSize                 units.Size
	layout                    string
	ops, distributions, modes []string
	durable                   bool
	goroutines                []int
	during                    []string
	rate                      float64
	dir                       string
	jsonPath                  string
}

func newBenchStoreCmd() *cobra.Command {
	f := benchStoreFlags{valueSize: 8}
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Measure a store in memory, compared with random accesses to that memory",
		Long: `Loads records into a store in memory and measures operations on them: each operation
with each distribution, mode and number of threads, alternately in short slices. The
limits of the machine are measured in the same way:

  limit  half the rate at which the threads load random cache lines, with prefetching,
         from memory as large as the store's index and log: an operation needs two, a
         bucket and a record. As in every row, the time includes drawing the random
         numbers.
  copy   the rate at which values are copied from random places (of 64 bytes or more)

Modes are plain (one call each), batch (Session.Do) and async (Session.Submit and
Poll). Figures are those of the slice with the median throughput; one slice includes a
forced garbage collection. Column CPU is the share of the time for which the threads had
a processor: well below 100 %, others used the machine.

A read copies a value out, an upsert copies one in. An rmw adds to the first 8 bytes of a
value in place: of 1 KiB, too, it reads and writes 8 bytes.
With --peer pebble, rows show the ratio to that store, which has its files in memory,
writes no log, and caches everything.
With --cold, the log is 6 times its memory, the rest is on a device that answers at
once, and rows show the shares of reads that memory and device answered.

With --durable, each write is durable before its goroutine makes the next: an upsert and a
commit to files in --dir. Rows show the ratio to --peer pebble, which syncs its log for
writes, and the latency beside that of a write and an fdatasync alone.

With --during, one thread reads and upserts records in memory at a fixed rate (--rate)
while the store works in the background, and rows show the latencies from the time at
which operations were due, beside those of a quiet store:

  checkpoint  snapshots, one after the other
  compaction  of all that is read-only
  growth      another thread inserts seven times as many records: the index doubles
  commit      ten a second
  flush       another thread inserts records, so that the log leaves memory
  resize      half the memory, and all of it again, ten times a second

During flush and resize a 256th of the records is used, so that what is used stays in
memory. Row machine is the loop without a store: the stalls of the machine.`,
		Example: "  redykv bench store --records 100000000 --ops read --threads 1,2\n" +
			"  redykv bench store --durable --value-size 100 --peer pebble\n" +
			"  redykv bench store --during checkpoint,commit --duration 10s",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	threads := []int{1}
	for n := 2; n <= runtime.NumCPU(); n *= 2 {
		threads = append(threads, n)
	}
	flags := cmd.Flags()
	flags.Int64Var(&f.spec.Records, "records", 10_000_000, "records to load")
	flags.Var(&f.valueSize, "value-size", "size of each value; keys have 8 bytes")
	flags.StringVar(&f.layout, "layout", "", "records of one size (fixed), or of variable length (variable); default: fixed for values of 8 bytes, otherwise variable")
	flags.StringSliceVar(&f.ops, "ops", []string{"read", "upsert", "rmw", "mixed"}, "operations: read, upsert, rmw, mixed (half read, half upsert)")
	flags.StringSliceVar(&f.distributions, "distributions", []string{"uniform", "zipfian"}, "how records are chosen: uniform, zipfian")
	flags.StringSliceVar(&f.modes, "modes", []string{"plain", "batch", "async"}, "how operations are submitted: plain, batch, async")
	flags.IntSliceVar(&f.spec.Threads, "threads", threads, "numbers of threads")
	flags.IntVar(&f.spec.Depth, "depth", storebench.DefaultDepth, "operations in a batch, or pending in async mode")
	flags.DurationVar(&f.spec.Duration, "duration", 2*time.Second, "time of each measurement, all slices together")
	flags.BoolVar(&f.spec.Cold, "cold", false, "measure reads of a log six times its memory")
	flags.Float64Var(&f.spec.ReadCache, "read-cache", 0, "share of a cold store's memory that is read cache")
	flags.StringVar(&f.spec.Peer, "peer", "", "another store to compare with, for plain uniform reads and mixes: pebble")
	flags.BoolVar(&f.durable, "durable", false, "measure durable writes")
	flags.IntSliceVar(&f.goroutines, "goroutines", []int{1, 8, 64}, "numbers of goroutines that write durably")
	flags.StringSliceVar(&f.during, "during", nil, "what the store does while latencies are measured: checkpoint, compaction, growth, commit, flush, resize")
	flags.Float64Var(&f.rate, "rate", 0, "operations a second of --during (default: half of the most)")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for the files of --durable and --during, which are removed afterwards (default: the one for temporary files)")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	return cmd
}

// parse sets the spec from the flags.
func (f *benchStoreFlags) parse(cmd *cobra.Command) (err error) {
	s := &f.spec
	s.ValueSize = int(f.valueSize)
	switch f.layout {
	case "":
		s.Variable = f.valueSize != 8
	case "fixed", "variable":
		s.Variable = f.layout == "variable"
	default:
		return fmt.Errorf("unknown layout %q: want fixed or variable", f.layout)
	}
	if s.Cold && !cmd.Flags().Changed("ops") {
		f.ops = []string{string(storebench.Read)}
	}
	if s.Ops, err = parseAll(f.ops, named("operation", storebench.Ops)); err != nil {
		return err
	}
	if s.Distributions, err = parseAll(f.distributions, named("distribution", ycsb.Distributions)); err != nil {
		return err
	}
	if s.Modes, err = parseAll(f.modes, named("mode", storebench.Modes)); err != nil {
		return err
	}
	return s.Check()
}

// named returns a parser of the names of known values.
func named[T ~string](what string, known []T) func(name string) (T, error) {
	return func(name string) (T, error) { return bench.Parse(what, name, known) }
}

func (f *benchStoreFlags) run(cmd *cobra.Command) error {
	switch {
	case f.durable:
		return f.runDurable(cmd)
	case len(f.during) > 0:
		return f.runDuring(cmd)
	}
	for _, flag := range []struct{ name, with string }{{"goroutines", "--durable"}, {"rate", "--during"}, {"dir", "--durable or --during"}} {
		if cmd.Flags().Changed(flag.name) {
			return usagef("--%s goes with %s", flag.name, flag.with)
		}
	}
	if err := f.parse(cmd); err != nil {
		return usageError{err}
	}
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		return storebench.Run(cmd.Context(), f.spec, p)
	})
}

// runDurable measures durable writes.
func (f *benchStoreFlags) runDurable(cmd *cobra.Command) error {
	if err := f.without(cmd, "--durable", "during", "rate"); err != nil {
		return err
	}
	if f.spec.Peer != "" && f.spec.Peer != storebench.PeerPebble {
		return usagef("unknown peer %q: want %s", f.spec.Peer, storebench.PeerPebble)
	}
	spec := durablebench.Spec{
		Records: f.spec.Records, ValueSize: int(f.valueSize), Goroutines: f.goroutines, Duration: f.spec.Duration, Pebble: f.spec.Peer != "",
	}
	if !cmd.Flags().Changed("records") {
		spec.Records = durableRecords
	}
	if err := spec.Check(); err != nil {
		return usageError{err}
	}
	return f.inFiles(cmd, "redykv-bench-durable-", func(dir string, p ycsb.Progress) (measurement, error) {
		spec.Dir = dir
		return durablebench.Run(cmd.Context(), spec, p)
	})
}

// runDuring measures latencies while the store works in the background.
func (f *benchStoreFlags) runDuring(cmd *cobra.Command) error {
	if err := f.without(cmd, "--during", "goroutines", "peer"); err != nil {
		return err
	}
	events, err := parseAll(f.during, named("event", tailsbench.Events))
	if err != nil {
		return usageError{err}
	}
	spec := tailsbench.Spec{Records: f.spec.Records, ValueSize: int(f.valueSize), Events: events, Duration: f.spec.Duration, Rate: f.rate}
	if err := spec.Check(); err != nil {
		return usageError{err}
	}
	return f.inFiles(cmd, "redykv-bench-tails-", func(dir string, p ycsb.Progress) (measurement, error) {
		spec.Dir = dir
		return tailsbench.Run(cmd.Context(), spec, p)
	})
}

// without returns an error for a flag of measurements in memory, or of some others.
func (f *benchStoreFlags) without(cmd *cobra.Command, with string, others ...string) error {
	for _, name := range append([]string{"layout", "ops", "distributions", "modes", "threads", "depth", "cold", "read-cache"}, others...) {
		if cmd.Flags().Changed(name) {
			return usagef("--%s does not go with %s", name, with)
		}
	}
	return nil
}

// inFiles measures in a new directory, which it removes.
func (f *benchStoreFlags) inFiles(cmd *cobra.Command, name string, measure func(dir string, p ycsb.Progress) (measurement, error)) (err error) {
	dir, err := dirs.MakeTemp(f.dir, name)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) { return measure(dir.Path, p) })
}

// durableRecords is the default number of records that are written durably.
const durableRecords = 10_000
