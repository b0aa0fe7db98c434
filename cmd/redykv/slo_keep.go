package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	keepbench "github.com/redykv/redykv/internal/bench/keep"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// sloKeepFlags are the flags of slo keep.
type sloKeepFlags struct {
	spec         keepbench.Spec
	disturbances []string
	jsonPath     string
	plotPath     string
	log          logFlags
}

func newSLOKeepCmd() *cobra.Command {
	f := sloKeepFlags{log: logFlags{level: slog.LevelError}}
	var names []string
	for _, d := range keepbench.Disturbances {
		names = append(names, string(d))
	}
	cmd := &cobra.Command{
		Use:   "keep",
		Short: "Measure how well SLOs are kept while something disturbs caches",
		Long: `Loads caches, each on a cache server of its own, behind a modelled network, and disturbs
them, once with a manager that only watches (--slo-watch=observe) and once with one that
corrects its models and changes caches:

  network    the network's round trip takes twice as long
  neighbour  another process takes the processor of one server for most of the time
  link       the link of one server has a hundredth of its bandwidth

From --settle after the beginning of the disturbance on, each window of each cache is
judged: it is kept if it has all of the SLO's throughput, within the latency. There is
one server more than caches. Manager and clients are this process, and the servers are
others.`,
		Example: "  redykv slo keep --json keep.json --plot keep.svg",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.disturbances, "disturbances", names, "disturbances, one after the other")
	flags.IntVar(&f.spec.Caches, "caches", 3, "caches")
	flags.DurationVar(&f.spec.Settle, "settle", 10*time.Second, "time from the beginning of a disturbance until windows count")
	flags.DurationVar(&f.spec.Measure, "measure", 15*time.Second, "time during which windows count")
	flags.DurationVar(&f.spec.Window, "window", 500*time.Millisecond, "length of a window")
	flags.DurationVar(&f.spec.Lease, "lease", 0, "lease of the caches, which report their windows when they renew it; 0: of 8 windows")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	flags.StringVar(&f.plotPath, "plot", "", "`file` to write a plot to (SVG)")
	f.log.add(flags)
	return cmd
}

func (f *sloKeepFlags) run(cmd *cobra.Command) error {
	s := &f.spec
	for _, name := range f.disturbances {
		d := keepbench.Disturbance(name)
		if !slices.Contains(keepbench.Disturbances, d) {
			return usagef("--disturbances %q: want some of %s", name, bench.Names(keepbench.Disturbances))
		}
		s.Disturbances = append(s.Disturbances, d)
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	s.Log = f.log.logger(cmd)
	s.Server = func(ctx context.Context, manager, id string, memory uint64) (*bench.Child, error) {
		return bench.StartChild(ctx, cmd.ErrOrStderr(), cacheServerReady, "cacheserver", "--until-stdin-ends", "--manager", manager, "--vm-id", id,
			"--memory", units.Size(memory).String(), "--transport", "tcp", "--distance", "1", "--notice", "0s", "--log-level", "error")
	}
	chart, err := openOutput(f.plotPath)
	if err != nil {
		return err
	}
	defer chart.discard()
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		report, err := keepbench.Run(cmd.Context(), *s, p)
		if err != nil {
			return nil, err
		}
		return report, chart.commit(func(out io.Writer) error {
			_, err := out.Write(report.Plot())
			return err
		})
	})
}
