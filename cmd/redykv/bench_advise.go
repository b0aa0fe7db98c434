package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/advisor"
	"github.com/redykv/redykv/internal/bench/advise"
	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// benchAdviseFlags are the flags of bench advise.
type benchAdviseFlags struct {
	spec      advise.Spec
	valueSize units.Size
	times     string
	dir       string
	jsonPath  string
}

func newBenchAdviseCmd() *cobra.Command {
	f := benchAdviseFlags{valueSize: 100}
	f.spec.Loads = advise.Loads
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Measure whether the advisor's settings give what it predicts",
		Long: `Measures what operations take in memory, read cache, Redy and SSD. Then, for each of
five loads, samples a store with a quarter of its data in memory, asks the advisor for the
cheapest setting with a throughput between those of a sixteenth of the data in memory and of
all of it, sets up a store as it says, and stores with less of each size, and measures them.
Columns in memory, in cache and in Redy are shares of reads, as predicted and as measured.`,
		Example: "  redykv bench advise --dir /ssd --json advise.json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.Int64Var(&f.spec.Records, "records", 2_000_000, "records of each load's stores")
	flags.Int64Var(&f.spec.Calibration.Records, "calibration-records", 500_000, "records of the stores by which times are measured")
	flags.Var(&f.valueSize, "value-size", "size of each value; keys have 8 bytes")
	flags.IntVar(&f.spec.Threads, "threads", runtime.NumCPU(), "threads of the load")
	flags.IntVar(&f.spec.Depth, "depth", ycsb.DefaultDepth, "operations that a thread keeps pending")
	flags.DurationVar(&f.spec.Duration, "duration", 2*time.Second, "duration of each measurement; the load runs twice as long before")
	flags.StringVar(&f.times, "times", "", "what operations take in each place, as in redykv advise (default: they are measured)")
	flags.BoolVar(&f.spec.NoRedy, "no-redy", false, "only local memory and the SSD")
	flags.StringVar(&f.spec.Transport, "transport", "", "transport of Redy")
	flags.StringVar(&f.spec.Net, "net", "", "network that the transport emulates, as in ycsb compare")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for the stores (default: the one for temporary files)")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	return cmd
}

func (f *benchAdviseFlags) run(cmd *cobra.Command) (err error) {
	s := &f.spec
	s.ValueSize, s.Prices = int(f.valueSize), advisor.Prices{Memory: 0.005, Redy: 0.001, SSD: 0.0001}
	if f.times != "" {
		t, err := parseTimes(f.times, s.NoRedy)
		if err != nil {
			return usageError{fmt.Errorf("--times: %w", err)}
		}
		s.Times = &t
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	dir, err := dirs.MakeTemp(f.dir, "redykv-bench-advise-")
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	s.Dir = dir.Path
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		return advise.Run(cmd.Context(), *s, p)
	})
}
