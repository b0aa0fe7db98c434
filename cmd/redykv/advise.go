package main

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/advisor"
	"github.com/redykv/redykv/internal/bench/advise"
	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// adviseFlags are the flags of advise.
type adviseFlags struct {
	source     adviseSource
	question   advisor.Question
	throughput float64
	latency    time.Duration
	times      string
	calibrate  advise.Calibration
	valueSize  units.Size
	dir        string
	jsonPath   string
	plotPath   string
}

func newAdviseCmd() *cobra.Command {
	f := adviseFlags{valueSize: 100}
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Find the cheapest sizes of memory, read cache and Redy cache for a load",
		Long: `Answers which sizes of local memory, read cache and Redy cache are the cheapest with
which a load gets a throughput or a mean latency, what to expect of them, and what each
step more would give. The load is that of

  --admin URL      a running server, whose accesses are sampled: redykv serve
                   --sample-accesses, or PUT /mrc?sampling=on at its --admin
  --trace FILE     a file with one access a line: a key, or an operation (read, write or
                   update), a key, and the record's size in bytes
  --workload FILE  a workload of YCSB, a file or a name such as workloada, with uniform or
                   zipfian requests

What an operation takes in each place is measured by small stores in --dir, which takes
about a minute, or given:

  --times memory=0.2,cache=0.4,redy=2/9,ssd=8/90,append=0.1

in microseconds: those of a thread for each operation at full load, after a slash the
latency, and for each KiB that is appended to the log. Prices are for a GiB and an hour.`,
		Example: `  redykv advise --admin localhost:9121 --throughput 1.5 --price-memory 0.005 --price-redy 0.001
  redykv advise --workload workloadb --latency 20us --plot cost.svg --json settings.json`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.source.add(flags)
	flags.Float64Var(&f.throughput, "throughput", 0, "wanted `Mop/s`; 0: none")
	flags.DurationVar(&f.latency, "latency", 0, "wanted mean latency; 0: none")
	flags.IntVar(&f.question.Threads, "threads", runtime.NumCPU(), "threads of the load")
	flags.IntVar(&f.calibrate.Depth, "depth", ycsb.DefaultDepth, "operations that a thread keeps pending")
	flags.Float64Var(&f.question.Prices.Memory, "price-memory", 0.005, "price of local memory")
	flags.Float64Var(&f.question.Prices.Redy, "price-redy", 0.001, "price of a Redy cache's memory, such as a manager offers")
	flags.Float64Var(&f.question.Prices.SSD, "price-ssd", 0.0001, "price of the SSD")
	flags.BoolVar(&f.question.NoRedy, "no-redy", false, "only local memory and the SSD")
	flags.StringVar(&f.times, "times", "", "what operations take in each place (default: they are measured)")
	flags.Int64Var(&f.calibrate.Records, "calibration-records", 500_000, "records of the stores by which times are measured")
	flags.DurationVar(&f.calibrate.Duration, "calibration-time", time.Second, "duration of each of these measurements")
	flags.Var(&f.valueSize, "value-size", "size of values in these stores, and of records that a trace does not say")
	flags.StringVar(&f.calibrate.Transport, "transport", "", "transport of Redy in these stores")
	flags.StringVar(&f.calibrate.Net, "net", "", "network that the transport emulates, as in ycsb compare")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for these stores (default: the one for temporary files)")
	flags.StringVar(&f.plotPath, "plot", "", "SVG `file` for the plot")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the settings to, as JSON lines")
	return cmd
}

func (f *adviseFlags) run(cmd *cobra.Command) (err error) {
	q := &f.question
	q.Goal = advisor.Goal{Mops: f.throughput, Latency: float64(f.latency) / float64(time.Microsecond)}
	if f.throughput <= 0 && f.latency <= 0 {
		return usagef("neither --throughput nor --latency is given")
	}
	if f.times != "" {
		if q.Times, err = parseTimes(f.times, q.NoRedy); err != nil {
			return usageError{fmt.Errorf("--times: %w", err)}
		}
	}
	if err := f.source.check(); err != nil {
		return usageError{err}
	}
	plotFile, err := openOutput(f.plotPath)
	if err != nil {
		return err
	}
	defer plotFile.discard()
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		if err := f.source.load(cmd.Context(), q, int(f.valueSize)); err != nil {
			return nil, err
		}
		if f.times == "" {
			if err := f.measure(cmd, p); err != nil {
				return nil, err
			}
		}
		a, err := advisor.Ask(*q)
		if err != nil {
			return nil, err
		}
		return a, plotFile.commit(a.WritePlot)
	})
}

// measure measures the times of each place.
func (f *adviseFlags) measure(cmd *cobra.Command, p ycsb.Progress) (err error) {
	dir, err := dirs.MakeTemp(f.dir, "redykv-advise-")
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	c := f.calibrate
	c.Dir, c.ValueSize, c.Threads, c.NoRedy = dir.Path, int(f.valueSize), f.question.Threads, f.question.NoRedy
	f.question.Times, err = advise.Calibrate(cmd.Context(), c, p)
	if err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "measured: --times %s\n", formatTimes(f.question.Times, c.NoRedy))
	}
	return err
}

// parseTimes parses --times.
func parseTimes(text string, noRedy bool) (t advisor.Times, err error) {
	places := map[string]*advisor.Time{"memory": &t.Memory, "cache": &t.Cache, "redy": &t.Redy, "ssd": &t.SSD}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		busy, latency, two := strings.Cut(value, "/")
		number, err := strconv.ParseFloat(busy, 64)
		if err != nil || !(number >= 0) {
			return t, fmt.Errorf("%q: want PLACE=MICROSECONDS, with a number that is not negative", part)
		}
		if name == "append" && !two {
			t.Append = number
			continue
		}
		place := places[name]
		if place == nil {
			return t, fmt.Errorf("%q: want one of memory, cache, redy and ssd", part)
		}
		*place = advisor.Time{Busy: number, Latency: number}
		if two {
			if place.Latency, err = strconv.ParseFloat(latency, 64); err != nil || !(place.Latency >= 0) {
				return t, fmt.Errorf("%q: the latency is not a number that is not negative", part)
			}
		}
	}
	for _, name := range []string{"memory", "cache", "redy", "ssd"} {
		if places[name].Busy == 0 && (name != "redy" || !noRedy) {
			return t, fmt.Errorf("%s is missing", name)
		}
	}
	return t, nil
}

// formatTimes is the inverse of parseTimes.
func formatTimes(t advisor.Times, noRedy bool) string {
	var parts []string
	for _, p := range []struct {
		name string
		time advisor.Time
	}{{"memory", t.Memory}, {"cache", t.Cache}, {"redy", t.Redy}, {"ssd", t.SSD}} {
		if p.name != "redy" || !noRedy {
			parts = append(parts, fmt.Sprintf("%s=%.3f/%.3f", p.name, p.time.Busy, p.time.Latency))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("append=%.3f", t.Append)), ",")
}
