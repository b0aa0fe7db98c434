package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	storebench "github.com/redykv/redykv/internal/bench/store"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

func newBenchCmd() *cobra.Command {
	return newGroup("bench", "Measure parts of redykv beside the machine's limits",
		newBenchStoreCmd(), newBenchFabricCmd(), newBenchCacheCmd(), newBenchMigrateCmd(), newBenchDeviceCmd())
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
		Short: "Measure a store in memory beside random accesses to that memory",
		Long: `Load records into a store in memory and measure operations on them: each operation
under each distribution in each mode with each number of threads, alternately in
short slices. Limits are measured in the same way:

  limit  random lines of 64 bytes that the threads load with prefetching from memory
         of the size of the store's index and log, divided by two: a bucket and a
         record for each operation. As every figure it includes drawing the
         numbers.
  copy   values of that size copied from random places (from 64 bytes on)

Modes are plain calls, batches (Session.Do) and async (Session.Submit and Poll).
Figures are medians of the slices in which the threads had their processors (column
CPU); a garbage collection is forced in one slice.
With --peer pebble rows have their ratio to that store, which has its files in
memory, writes no log, and caches everything.
With --cold the log is 6 times its memory, the rest on a device that answers at
once, and rows have the shares of reads that memory and device answered.`,
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
	flags.StringVar(&f.layout, "layout", "", "records of one size (fixed) or with their lengths (variable); fixed for values of 8 bytes")
	flags.StringSliceVar(&f.ops, "ops", []string{"read", "upsert", "rmw", "mixed"}, "operations: read, upsert, rmw, mixed (half read, half upsert)")
	flags.StringSliceVar(&f.distributions, "distributions", []string{"uniform", "zipfian"}, "how records are chosen: uniform, zipfian")
	flags.StringSliceVar(&f.modes, "modes", []string{"plain", "batch", "async"}, "how operations are submitted: plain, batch, async")
	flags.IntSliceVar(&f.spec.Threads, "threads", threads, "numbers of threads")
	flags.IntVar(&f.spec.Depth, "depth", storebench.DefaultDepth, "operations of a batch, and pending in async mode")
	flags.DurationVar(&f.spec.Duration, "duration", 2*time.Second, "time of each measurement, all its slices together")
	flags.BoolVar(&f.spec.Cold, "cold", false, "a log six times its memory; reads only")
	flags.Float64Var(&f.spec.ReadCache, "read-cache", 0, "share of a cold store's memory that is read cache")
	flags.StringVar(&f.spec.Peer, "peer", "", "another store to compare with: pebble, under plain uniform reads and mixes")
	flags.StringVar(&f.jsonPath, "json", "", "file for the results as JSON lines")
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
	if s.Ops, err = parseAll("operation", f.ops, storebench.Ops); err != nil {
		return err
	}
	if s.Distributions, err = parseAll("distribution", f.distributions, ycsb.Distributions); err != nil {
		return err
	}
	if s.Modes, err = parseAll("mode", f.modes, storebench.Modes); err != nil {
		return err
	}
	return s.Check()
}

func parseAll[T ~string](what string, names []string, known []T) ([]T, error) {
	var all []T
	for _, name := range names {
		v, err := storebench.Parse(what, name, known)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (f *benchStoreFlags) run(cmd *cobra.Command) error {
	if err := f.parse(cmd); err != nil {
		return usageError{err}
	}
	var out *outputFile
	if f.jsonPath != "" {
		var err error
		if out, err = openOutput(f.jsonPath); err != nil {
			return err
		}
		defer out.discard()
	}
	report, err := storebench.Run(cmd.Context(), f.spec, newProgress(cmd.ErrOrStderr()))
	if err != nil {
		return plainly(cmd.Context(), err)
	}
	if err := report.WriteTable(cmd.OutOrStdout()); err != nil || out == nil {
		return err
	}
	return out.commit(report.WriteJSON)
}
