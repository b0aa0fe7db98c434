package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	storebench "github.com/redykv/redykv/internal/bench/store"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

func newBenchCmd() *cobra.Command {
	return newGroup("bench", "Measure parts of redykv, compared with the machine's limits",
		newBenchStoreCmd(), newBenchFabricCmd(), newBenchCacheCmd(), newBenchMigrateCmd(), newBenchDeviceCmd(), newBenchManagerCmd())
}

// benchStoreFlags are the flags of bench store.
type benchStoreFlags struct {
	spec                      storebench.Spec
	valueSize                 units.Size
	layout                    string
	ops, distributions, modes []string
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
Poll). Figures are medians of the slices in which the threads had their processors
(column CPU); one slice includes a forced garbage collection.
With --peer pebble, rows show the ratio to that store, which has its files in memory,
writes no log, and caches everything.
With --cold, the log is 6 times its memory, the rest is on a device that answers at
once, and rows show the shares of reads that memory and device answered.`,
		Example: "  redykv bench store --records 100000000 --ops read --threads 1,2",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
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
	if err := f.parse(cmd); err != nil {
		return usageError{err}
	}
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		return storebench.Run(cmd.Context(), f.spec, p)
	})
}
