package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	devicebench "github.com/redykv/redykv/internal/bench/device"
	"github.com/redykv/redykv/internal/fabric"
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
	readCaches             []float64
	devices, distributions []string
	mixes                  []string
	churn                  float64
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
		Short: "Compare a store's devices, and other stores, under random reads and writes",
		Long: `Loads the same records into a store on each device, reads them at random, or reads and
writes them (--mixes), with each distribution and number of threads, and prints
throughput and latency side by side. Devices are measured alternately: all under one
load before the next load.

  redy    a Redy cache above the SSD; its server is another process, reached over
          shared memory with the network model of --net
  ssd     files alone, with direct I/O
  smb     a file server: Samba on this machine, over loopback, its share in memory
  memory  a device in this process's memory
  pebble, badger, bbolt
          other embedded stores; their files are read through the page cache. They have
          a goroutine for each operation that redykv keeps pending (--depth), and in a
          second row one for each thread

  a      as many reads as updates of whole values (YCSB's A)
  b      95 % reads, 5 % updates
  c      reads alone
  f      as many reads as read-modify-writes
  write  updates alone

If a mix writes, stores of redykv compact by themselves, no store syncs what it writes,
and each is written to before the rounds (--churn), until it reuses space. "write amp" is
the bytes that its process wrote to disks over those of the keys and values written, and
"space amp" the space of its files over all keys and values. A record of redykv has 8
bytes more than its key and value. "settle s" is how long after a run the background work
went on, 10 s at most, before the next store ran. "processors" are those that the process used, with the
threads of the load.

Beside the ssd stands the disk itself (row disk): random reads of blocks as large as the
ssd's, with as many in flight, by the ssd device alone and by fio, whichever is faster,
as redykv bench device measures them. Column "of disk" is the share that the ssd's cold
reads have of it. If a mix writes, there are also the disk's writes at the end of a log,
of 64 KiB, and column "of writes" is the share that all of the ssd's writes have of them.

Each store has a process, and all those processes have the same memory limit, which the
page cache that they fill counts for, where a control group can be made: the most that
one of redykv's stores needs, by estimate. The caches of another store are what that
leaves beside its process, and at least half of what redykv has for local memory and
index; the limit is larger if they do not fit. Pebble's process has MALLOC_ARENA_MAX=1,
because its block cache is memory of the C library, which would grow beyond its size in
many arenas. Files in a directory that is in memory (tmpfs) count as memory. The servers
of redy and smb, which would be other machines, are outside.

A store that the kernel kills at its limit has rows that say so, with the rounds before;
the other stores go on. The exit code is 1 then if it is a store of redykv.

With several shares in --read-cache there is a store on each device for each of them.
Every store and round reads a sequence of records of its own. Figures are those of the
round with the median throughput; ratios and shares (vs ssd, vs smb, of disk) are the
median of the rounds' ratios.

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
	flags.Float64SliceVar(&f.readCaches, "read-cache", []float64{0}, "shares of --memory for a read cache, 0 to less than 1, which helps zipfian reads: a store on each device for each share")
	flags.Lookup("memory").DefValue = "1/6 of the log"
	flags.Lookup("cache").DefValue = "8/6 of the log"
	flags.StringSliceVar(&f.devices, "devices", []string{"redy", "ssd"}, "devices to compare: redy, ssd, smb, memory; and other stores: pebble, badger, bbolt")
	flags.StringSliceVar(&f.mixes, "mixes", []string{"c"}, "what is done with records: a, b, c, f, write")
	flags.Float64Var(&f.churn, "churn", 10, "times the local memory that are written to each store before the rounds, if a mix writes")
	flags.StringSliceVar(&f.distributions, "distributions", []string{"uniform", "zipfian"}, "how records are chosen: uniform, zipfian")
	flags.IntSliceVar(&f.threads, "threads", []int{1, 2}, "numbers of threads")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "time of each run")
	flags.DurationVar(&f.warmup, "warmup", 500*time.Millisecond, "time of each run before the measurement starts")
	flags.IntVar(&f.rounds, "rounds", 1, "repetitions of each run, alternately; the table has the round with the median throughput, the lowest and the highest")
	flags.Float64Var(&f.rate, "rate", 0, "operations a second that all threads together start, even if earlier ones are pending (open loop); latencies count from the time at which an operation is due (default: closed loop, as many as possible)")
	flags.IntVar(&f.depth, "depth", ycsb.DefaultDepth, "operations that each thread keeps pending")
	flags.StringVar(&f.net, "net", "rdma", "model of the network to Redy: "+fabric.ModelUsage)
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	flags.StringVar(&f.reportPath, "report", "", "`file` to write the report to, as one HTML page")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for files, which are removed afterwards (default: the directory for temporary files)")
	return cmd
}

// compareStoreReady is the line with which the process of a store begins.
const compareStoreReady = "store ready"

// newCompareStoreCmd returns the command of a store's process.
func newCompareStoreCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "compare-store",
		Short:  "Have one store of ycsb compare, and obey orders on standard input",
		Hidden: true,
		Args:   usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), compareStoreReady)
			return ycsb.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// comparison returns the comparison that the flags describe.
func (f *compareFlags) comparison(cmd *cobra.Command) (c ycsb.Comparison, err error) {
	c = ycsb.Comparison{
		Shape: ycsb.Shape{
			Records: f.records, ValueSize: int(f.valueSize), Net: f.net, Depth: f.depth,
		},
		Child: func(ctx context.Context, env []string, lines chan<- string) (*bench.Child, error) {
			return bench.StartTalking(ctx, cmd.ErrOrStderr(), compareStoreReady, env, lines, "ycsb", "compare-store")
		},
		Disk: func(ctx context.Context, dir string, load ycsb.DiskLoad) (ycsb.Disk, error) {
			return devicebench.OpenCeiling(ctx, dir, load)
		},
		ReadCaches: f.readCaches, Churn: f.churn, Threads: f.threads, Duration: f.duration, Warmup: f.warmup, Rate: f.rate, Rounds: f.rounds,
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
	if c.Mixes, err = parseAll(f.mixes, ycsb.ParseMix); err != nil {
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
		Shape: c.Shape, ReadCaches: c.ReadCaches, Mixes: c.Mixes, Churn: c.Churn, Rounds: c.Rounds, Duration: c.Duration, Warmup: c.Warmup,
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
	return failures(results)
}

// failures returns an error for operations that went wrong, and for a store of redykv that was
// killed. Another store that was killed is part of the result.
func failures(results []ycsb.Result) error {
	for _, r := range results {
		switch {
		case r.Errors > 0:
			return fmt.Errorf("%s: %d operations failed or returned a wrong value; the first: %s", r.Experiment, r.Errors, r.FirstError)
		case r.Killed != "" && !slices.Contains(ycsb.Peers, r.Device):
			return fmt.Errorf("%s: %s", r.Experiment, r.Killed)
		}
	}
	return nil
}
