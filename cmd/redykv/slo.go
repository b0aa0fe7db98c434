package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	modelbench "github.com/redykv/redykv/internal/bench/model"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/ycsb"
)

func newSLOCmd() *cobra.Command {
	return newGroup("slo", "Check that caches meet their SLOs, and keep them",
		newSLOCheckCmd(), newSLOKeepCmd())
}

// sloCheckFlags are the flags of slo check.
type sloCheckFlags struct {
	spec      modelbench.CheckSpec
	modelPath string
	idle      string
	capacity  units.Size
	record    units.Size
	jsonPath  string
	verdict   string // path
	minKept   int
	calibrate bool
	log       logFlags
}

func newSLOCheckCmd() *cobra.Command {
	f := sloCheckFlags{capacity: 256 << 20, record: 64, log: logFlags{level: slog.LevelWarn}}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Draw random SLOs, create a cache for each, and measure it",
		Long: `Draws random SLOs within the range of latency and throughput of a model. For each one
that can be met, it creates a cache with the configuration that the manager chooses,
and measures it. The report has the distributions of figures 13 and 14 of the Redy
paper (SLO, predicted, measured), how many SLOs were met, their cores, and the time of
the searches. The exit code is 1, after the report, if fewer were met than --min-kept, by
default 95 of 100.

An SLO is met if the mean latency is within it and the mean throughput is all of it,
over all slices after the warm-up, of reads and of writes. What other load and a model's
errors take is the manager's margin (--slo-margin): it chooses a configuration whose
prediction is better than the SLO by that share.

Before and after each cache the transport alone is measured, and how much of the processors
threads have that never wait. An SLO that is missed while one of these is lower than at the
start, by more than the margin, is the machine's or a neighbour's: it is counted apart, and
--min-kept is a share of the others. If these are fewer than half, the exit code is 1, too.

Without --model, the models of the program are scaled by a measurement of this machine
before, of at most 20 seconds, as a manager does where it has no model (--calibrate).

A manager runs in this process and starts each cache server as a second process (over
mem: in this one), on separate processors if the model was measured so (redykv model
build --apart). The machine should be otherwise idle, and like the one that the model
was measured on.`,
		Example: "  redykv slo check --model model.json --record 64 --json slo.json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.spec.Count, "count", 100, "SLOs to check")
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network between client and server: "+fabric.ModelUsage)
	flags.Var(&f.record, "record", "record size")
	flags.StringVar(&f.modelPath, "model", "", "`file` of a performance model (default: the models that are part of the program)")
	flags.Float64Var(&f.spec.Margin, "slo-margin", manager.DefaultSLOMargin, "how much better than the SLO the prediction must be, as a share of its bounds")
	flags.Uint64Var(&f.spec.Seed, "seed", 1, "seed of the random SLOs")
	flags.DurationVar(&f.spec.Duration, "duration", time.Second, "time to measure each cache: all slices of its reads and writes")
	flags.IntVar(&f.spec.Slices, "slices", modelbench.DefaultSlices, "slices in which reads and writes of a cache take turns; all count")
	flags.Var(&f.capacity, "capacity", "size of each cache; that of the model's build (--capacity)")
	flags.StringVar(&f.idle, "idle", "", "what an idle thread does: "+bench.Names(fabricbench.Idles)+" (default: wait over tcp, otherwise poll)")
	flags.IntVar(&f.minKept, "min-kept", 0, "SLOs of --count whose latency and throughput must be met, otherwise the exit code is 1; 0: only report")
	flags.Lookup("min-kept").DefValue = "95 of 100"
	flags.BoolVar(&f.calibrate, "calibrate", true, "scale the models that are part of the program by a measurement of this machine, as a manager does; not with --model")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	flags.StringVar(&f.verdict, "verdict", "", "`file` to write how many SLOs were met to, and how good the predictions were, as one line of JSON")
	f.log.add(flags)
	return cmd
}

func (f *sloCheckFlags) run(cmd *cobra.Command) (err error) {
	s := &f.spec
	if s.Idle, err = parseCacheFlags(s.Transport, s.Net, "", f.idle); err != nil {
		return usageError{err}
	}
	s.RecordSize, s.Capacity, s.Log = int(f.record), int64(f.capacity), f.log.logger(cmd)
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	if f.jsonPath != "" && f.jsonPath == f.verdict {
		return usagef("--json and --verdict name the same file, %s", f.verdict)
	}
	if !cmd.Flags().Changed("min-kept") {
		f.minKept = (95*s.Count + 99) / 100
	}
	if f.minKept < 0 || f.minKept > s.Count {
		return usagef("--min-kept %d: want 0 to --count, %d", f.minKept, s.Count)
	}
	if err := errors.Join(checkMargin("--slo-margin", s.Margin), checkMemory("--capacity", f.capacity)); err != nil {
		return err
	}
	opts := manager.EmbedOptions{SLOMargin: cmp.Or(s.Margin, -1), UncalibratedMargin: -1, Logger: s.Log} // 0 would mean the default
	if f.modelPath != "" {
		m, err := model.Load(f.modelPath)
		if err != nil {
			return err
		}
		opts.Models = []*model.Model{m}
	}
	models := append(slices.Clone(opts.Models), model.Shipped()...)
	if s.Apart, err = modelbench.Apart(models, *s); err != nil {
		return err
	}
	mgr, end, err := startCacheManager(cmd, "", cachebench.Servers{Transport: s.Transport, Apart: s.Apart}, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if f.calibrate && f.modelPath == "" {
		scaled, err := mgr.(*cachebench.Manager).CalibrateHere(cmd.Context(), s.Transport, networkName(s.Net), modelbench.Calibrate)
		switch {
		case err == nil:
			models = scaled
		case errors.Is(err, manager.ErrDisturbed):
			s.Log.Warn("not calibrated: predictions come from models of other machines", "err", err)
		default:
			return err
		}
	}
	verdict, err := openOutput(f.verdict)
	if err != nil {
		return err
	}
	defer verdict.discard()
	var report *modelbench.CheckReport
	if err := runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		report, err = modelbench.Check(cmd.Context(), mgr, models, *s, p)
		return report, err
	}); err != nil {
		return err
	}
	if err := verdict.commit(report.WriteVerdict); err != nil {
		return err
	}
	return f.keptEnough(report)
}

// networkName returns the name of a network, which was checked, at the least distance.
func networkName(net string) string {
	n, _ := fabric.ParseNetwork(net)
	return n.At(1).String()
}

// keptEnough returns an error if of the SLOs by which the manager is judged fewer were met than
// --min-kept of all would be.
func (f *sloCheckFlags) keptEnough(report *modelbench.CheckReport) error {
	v := report.Verdict()
	judged := v.Judged()
	switch {
	case f.minKept == 0:
		return nil
	case 2*judged < v.SLOs:
		return fmt.Errorf("the machine was disturbed during %d of %d SLOs, which were not met: too many to judge by the others", v.SLOs-judged, v.SLOs)
	case v.Both*v.SLOs < f.minKept*judged:
		return fmt.Errorf("%d of %d SLOs were met, fewer than --min-kept %d of %d", v.Both, judged, f.minKept, v.SLOs)
	}
	return nil
}

// checkMargin returns an error for a margin out of range.
func checkMargin(flag string, margin float64) error {
	if !(margin >= 0 && margin <= manager.MaxSLOMargin) {
		return usagef("%s %v: want 0 to %v", flag, margin, manager.MaxSLOMargin)
	}
	return nil
}
