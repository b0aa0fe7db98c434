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
		Short: "Compare a store's devices under the same random reads",
		Long: `Load the same records into a store on each device, read them at random under each
distribution with each number of threads, and print throughput and latency side by
side. Devices are measured alternately: all under one load before the next load.

  redy    a Redy cache over the SSD; its server is another process, reached over
          shared memory with the network model of --net
  ssd     files alone, with direct I/O
  smb     a file server: Samba on this machine over loopback, its share in memory
  memory  a device in this process's memory
  pebble, badger, bbolt
          other embedded stores with the same memory for their caches; their files
          are read through the page cache, by one plain call after another

Sizes default to the paper's scale: the log is 6 times the local memory, and Redy's
cache is 8 times, so that it holds the whole log. What is compared is a ratio: on a
shared machine the figures themselves vary.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.Int64Var(&f.records, "records", 10_000_000, "records to load")
	flags.Var(&f.valueSize, "value-size", "size of each value; keys have 8 bytes")
	flags.Var(&f.memory, "memory", "log kept in local memory")
	flags.Var(&f.cache, "cache", "Redy's remote memory")
	flags.Float64Var(&f.readCache, "read-cache", 0, "share of --memory that is read cache, 0 to less than 1: for --distributions zipfian")
	flags.Lookup("memory").DefValue = "1/6 of the log"
	flags.Lookup("cache").DefValue = "8/6 of the log"
	flags.StringSliceVar(&f.devices, "devices", []string{"redy", "ssd"}, "devices to compare: redy, ssd, smb, memory; and other stores: pebble, badger, bbolt")
	flags.StringSliceVar(&f.distributions, "distributions", []string{"uniform", "zipfian"}, "how records are chosen: uniform, zipfian")
	flags.IntSliceVar(&f.threads, "threads", []int{1, 2}, "numbers of reading threads")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "time of each run")
	flags.DurationVar(&f.warmup, "warmup", 500*time.Millisecond, "time before each run that is not measured")
	flags.IntVar(&f.rounds, "rounds", 1, "repetitions of each run, alternately; the median counts, and the table has the least and the most")
	flags.Float64Var(&f.rate, "rate", 0, "reads a second that all threads of a run together begin, even if earlier reads are pending (open loop); latencies count from the time at which a read is due (default: closed loop, as many as possible)")
	flags.IntVar(&f.depth, "depth", ycsb.DefaultDepth, "reads that each thread keeps pending")
	flags.StringVar(&f.net, "net", "rdma", "network to Redy: rdma (2.9us,100Gbit), none, or latency and bandwidth")
	flags.StringVar(&f.jsonPath, "json", "redykv-compare.jsonl", "file for the results as JSON lines; empty for none")
	flags.StringVar(&f.reportPath, "report", "redykv-compare.html", "file for the report as one HTML page; empty for none")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for files, which are removed afterwards; empty: the directory of temporary files")
	return cmd
}

// comparison returns the comparison that the flags describe.
func (f *compareFlags) comparison(cmd *cobra.Command) (ycsb.Comparison, error) {
	c := ycsb.Comparison{
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
	for _, name := range f.devices {
		d, err := ycsb.ParseDevice(name)
		if err != nil {
			return c, err
		}
		c.Devices = append(c.Devices, d)
	}
	for _, name := range f.distributions {
		d, err := ycsb.ParseDistribution(name)
		if err != nil {
			return c, err
		}
		c.Distributions = append(c.Distributions, d)
	}
	if f.jsonPath != "" && f.jsonPath == f.reportPath {
		return c, fmt.Errorf("--json and --report are both %s", f.jsonPath)
	}
	return c, c.Check()
}

func (f *compareFlags) run(cmd *cobra.Command) (err error) {
	c, err := f.comparison(cmd)
	if err != nil {
		return usageError{err}
	}
	outputs, err := f.openOutputs()
	if err != nil {
		return err
	}
	defer outputs.discard()
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
		return plainly(cmd.Context(), err)
	}
	if err := outputs.commit(cmd.OutOrStdout(), head, results); err != nil {
		return err
	}
	for _, r := range results {
		if r.Errors > 0 {
			return fmt.Errorf("%s: %d reads went wrong; the first: %s", r.Experiment, r.Errors, r.FirstError)
		}
	}
	return nil
}

// compareOutputs are the files that a comparison writes.
type compareOutputs struct {
	json, html *outputFile // nil: not written
}

func (f *compareFlags) openOutputs() (out compareOutputs, err error) {
	if f.jsonPath != "" {
		if out.json, err = openOutput(f.jsonPath); err != nil {
			return out, err
		}
	}
	if f.reportPath != "" {
		if out.html, err = openOutput(f.reportPath); err != nil {
			out.discard()
		}
	}
	return out, err
}

// commit writes the files and prints their names.
func (out compareOutputs) commit(stdout io.Writer, head report.Head, results []ycsb.Result) error {
	fmt.Fprintln(stdout)
	if out.json != nil {
		err := out.json.commit(func(w io.Writer) error { return report.WriteJSON(w, results) })
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "JSON lines: %s\n", out.json.path)
	}
	if out.html != nil {
		err := out.html.commit(func(w io.Writer) error { return report.WriteHTML(w, head, results) })
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "report: %s\n", out.html.path)
	}
	return nil
}

func (out compareOutputs) discard() {
	for _, o := range []*outputFile{out.json, out.html} {
		if o != nil {
			o.discard()
		}
	}
}
