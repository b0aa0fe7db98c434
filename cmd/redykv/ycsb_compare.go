package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
	"github.com/redykv/redykv/ycsb/report"
)

// compareFlags are the flags of ycsb compare.
type compareFlags struct {
	records                int64
	valueSize              units.Size
	memory, cache          units.Size
	readCache              float64
	devices, distributions []string
	threads                []int
	duration, warmup       time.Duration
	rounds                 int
	rate                   float64
	depth                  int
	net                    string
	jsonPath, reportPath   string
	dir                    string
}

func newCompareCmd() *cobra.Command {
	f := compareFlags{valueSize: 8}
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare a store's devices, and other stores, under random reads",
		Long: `Loads the same records into a store on each device, reads them at random with each
distribution and number of threads, and prints throughput and latency side by side.
Devices are measured alternately: all under one load before the next load.

  redy    a Redy cache above the SSD; its server is another process, reached over
          shared memory with the network model of --net
  ssd     files alone, with direct I/O
  smb     a file server: Samba on this machine, over loopback, its share in memory
  memory  a device in this process's memory
  pebble, badger, bbolt
          other embedded stores with the same memory for their caches; their files are
          read through the page cache, by one plain call after another

Sizes default to the proportions of the Redy paper: the log is 6 times the local
memory, and Redy's cache is 8 times, so that it holds the whole log. Compare ratios: on
a shared machine the figures themselves vary.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.Int64Var(&f.records, "records", 10_000_000, "records to load")
	flags.Var(&f.valueSize, "value-size", "size of each value; keys have 8 bytes")
	flags.Var(&f.memory, "memory", "log kept in local memory")
	flags.Var(&f.cache, "cache", "Redy's remote memory")
	flags.Float64Var(&f.readCache, "read-cache", 0, "share of --memory for a read cache, 0 to less than 1; helps zipfian reads")
	flags.Lookup("memory").DefValue = "1/6 of the log"
	flags.Lookup("cache").DefValue = "8/6 of the log"
	flags.StringSliceVar(&f.devices, "devices", []string{"redy", "ssd"}, "devices to compare: redy, ssd, smb, memory; and other stores: pebble, badger, bbolt")
	flags.StringSliceVar(&f.distributions, "distributions", []string{"uniform", "zipfian"}, "how records are chosen: uniform, zipfian")
	flags.IntSliceVar(&f.threads, "threads", []int{1, 2}, "numbers of reading threads")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "time of each run")
	flags.DurationVar(&f.warmup, "warmup", 500*time.Millisecond, "time of each run before the measurement starts")
	flags.IntVar(&f.rounds, "rounds", 1, "repetitions of each run, alternately; the table has the median, the lowest and the highest")
	flags.Float64Var(&f.rate, "rate", 0, "reads a second that all threads together start, even if earlier reads are pending (open loop); latencies count from the time at which a read is due (default: closed loop, as many as possible)")
	flags.IntVar(&f.depth, "depth", ycsb.DefaultDepth, "reads that each thread keeps pending")
	flags.StringVar(&f.net, "net", "rdma", "model of the network to Redy: rdma (2.9us,100Gbit), none, or a round trip and a bandwidth")
	flags.StringVar(&f.jsonPath, "json", "redykv-compare.jsonl", "`file` to write the results to, as JSON lines; empty: none")
	flags.StringVar(&f.reportPath, "report", "redykv-compare.html", "`file` to write the report to, as one HTML page; empty: none")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for files, which are removed afterwards (default: the directory for temporary files)")
	return cmd
}

// comparison returns the comparison that the flags describe.
func (f *compareFlags) comparison(cmd *cobra.Command) (c ycsb.Comparison, err error) {
	c = ycsb.Comparison{
		Shape: ycsb.Shape{
			Records: f.records, ValueSize: int(f.valueSize), ReadCache: f.readCache, Net: f.net, Depth: f.depth,
		},
		Threads: f.threads, Duration: f.duration, Warmup: f.warmup, Rate: f.rate, Rounds: f.rounds,
	}
	// The default sizes depend on the size of the log, so these flags are checked first.
	if f.records < 1 || f.records > ycsb.MaxRecords || f.valueSize < 1 || f.valueSize > ycsb.MaxValueSize {
		return c, fmt.Errorf("--records %d of --value-size %v: want 1 to %d records of 1B to %v",
			f.records, f.valueSize, int64(ycsb.MaxRecords), units.Size(ycsb.MaxValueSize))
	}
	c.Memory, c.Cache = int64(f.memory), int64(f.cache)
	if !cmd.Flags().Changed("memory") {
		c.Memory = ycsb.DefaultMemory(c.LogBytes())
	}
	if !cmd.Flags().Changed("cache") {
		c.Cache = ycsb.DefaultCache(c.LogBytes())
	}
	if c.Devices, err = parseAll(f.devices, ycsb.ParseDevice); err != nil {
		return c, err
	}
	if c.Distributions, err = parseAll(f.distributions, ycsb.ParseDistribution); err != nil {
		return c, err
	}
	if f.jsonPath != "" && f.jsonPath == f.reportPath {
		return c, fmt.Errorf("--json and --report name the same file, %s", f.jsonPath)
	}
	return c, c.Check()
}

func (f *compareFlags) run(cmd *cobra.Command) (err error) {
	c, err := f.comparison(cmd)
	if err != nil {
		return usageError{err}
	}
	jsonFile, err := openOutput(f.jsonPath)
	if err != nil {
		return err
	}
	defer jsonFile.discard()
	htmlFile, err := openOutput(f.reportPath)
	if err != nil {
		return err
	}
	defer htmlFile.discard()
	work, err := makeWorkDir(f.dir, "redykv-compare-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.remove()) }()
	c.Dir = work.dir.Path

	head := report.Head{
		Machine: machine.Describe(), Dir: c.Dir, Started: time.Now(),
		Shape: c.Shape, Duration: c.Duration, Warmup: c.Warmup,
	}
	results, err := ycsb.Compare(cmd.Context(), c, newProgress(cmd.ErrOrStderr()))
	head.Took = time.Since(head.Started)
	if len(results) > 0 {
		err = errors.Join(err, report.WriteTable(cmd.OutOrStdout(), head, results))
	}
	if err != nil {
		return orInterrupted(cmd.Context(), err)
	}
	fmt.Fprintln(cmd.OutOrStdout())
	for _, out := range []struct {
		*outputFile
		what  string
		write func(w io.Writer) error
	}{
		{jsonFile, "JSON lines", func(w io.Writer) error { return report.WriteJSON(w, results) }},
		{htmlFile, "report", func(w io.Writer) error { return report.WriteHTML(w, head, results) }},
	} {
		if out.outputFile == nil {
			continue
		}
		if err := out.commit(out.write); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", out.what, out.path)
	}
	for _, r := range results {
		if r.Errors > 0 {
			return fmt.Errorf("%s: %d reads failed or returned a wrong value; the first: %s", r.Experiment, r.Errors, r.FirstError)
		}
	}
	return nil
}
