package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	modelbench "github.com/redykv/redykv/internal/bench/model"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
)

func newSLOCmd() *cobra.Command {
	return newGroup("slo", "Check that caches keep their SLOs",
		newSLOCheckCmd())
}

// sloCheckFlags are the flags of slo check.
type sloCheckFlags struct {
	spec      modelbench.CheckSpec
	modelPath string
	idle      string
	capacity  units.Size
	record    units.Size
	jsonPath  string
	minKept   int
	log       logFlags
}

func newSLOCheckCmd() *cobra.Command {
	f := sloCheckFlags{capacity: 256 << 20, record: 64, log: logFlags{level: slog.LevelWarn}}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Draw SLOs, make a cache by each, and measure it",
		Long: `Draw SLOs between the least and the most latency and throughput of a model, make a cache
by each one that can be met, with the configuration that the manager finds for it, and
measure it. The report has the distributions of figures 13 and 14 (SLO, predicted,
measured), the number of SLOs that were kept, their cores, and the time of the searches.
With --min-kept the exit code is 1, after the report, if fewer SLOs were kept.

A manager runs in this process and starts each cache server as a second process (over
mem: in this one), on separate processors if the model was measured so (redykv model
build --apart). The machine should be otherwise idle, and of the kind that the model was
measured on.`,
		Example: "  redykv slo check --model model.json --record 64 --json slo.json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.spec.Count, "count", 100, "SLOs that can be met")
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network in between")
	flags.Var(&f.record, "record", "record size")
	flags.StringVar(&f.modelPath, "model", "", "`file` of a performance model (default: those that are part of the program)")
	flags.Float64Var(&f.spec.Margin, "slo-margin", manager.DefaultSLOMargin, "how much better than the SLO the prediction must be, as a part of its bounds")
	flags.Uint64Var(&f.spec.Seed, "seed", 1, "seed of the random SLOs")
	flags.DurationVar(&f.spec.Duration, "duration", time.Second, "time of the measurement of each cache, its reads, writes, repeats and rounds together")
	flags.IntVar(&f.spec.Rounds, "rounds", 3, "how often each cache is made and measured, alternately, as neighbours slow a machine down for seconds; the fastest counts")
	flags.IntVar(&f.spec.Repeats, "repeats", modelbench.DefaultRepeats, "measurements of each cache in all rounds, of which the second fastest of a round counts")
	flags.Var(&f.capacity, "capacity", "size of each cache, as the model was measured with")
	flags.StringVar(&f.idle, "idle", "", "what an idle thread does: "+fabricbench.Names(fabricbench.Idles)+" (default wait on tcp, otherwise poll)")
	flags.IntVar(&f.minKept, "min-kept", 0, "SLOs whose latency and throughput must be kept; fewer: exit code 1")
	flags.StringVar(&f.jsonPath, "json", "", "file for the results as JSON lines")
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
	if f.minKept < 0 || f.minKept > s.Count {
		return usagef("--min-kept %d: want 0 to --count, %d", f.minKept, s.Count)
	}
	if err := errors.Join(checkMargin(s.Margin), checkMemory("--capacity", f.capacity)); err != nil {
		return err
	}
	opts := manager.EmbedOptions{SLOMargin: s.Margin, Logger: s.Log}
	if s.Margin == 0 {
		opts.SLOMargin = -1
	}
	if f.modelPath != "" {
		m, err := model.Load(f.modelPath)
		if err != nil {
			return err
		}
		opts.Models = []*model.Model{m}
	}
	var out *outputFile
	if f.jsonPath != "" {
		if out, err = openOutput(f.jsonPath); err != nil {
			return err
		}
		defer out.discard()
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
	report, err := modelbench.Check(cmd.Context(), mgr, models, *s, newProgress(cmd.ErrOrStderr()))
	if err != nil {
		return plainly(cmd.Context(), err)
	}
	if err := report.WriteTable(cmd.OutOrStdout()); err != nil {
		return err
	}
	if out != nil {
		if err := out.commit(report.WriteJSON); err != nil {
			return err
		}
	}
	return f.keptEnough(report)
}

func (f *sloCheckFlags) keptEnough(report *modelbench.CheckReport) error {
	if kept := report.Verdict().Both; kept < f.minKept {
		return fmt.Errorf("%d of %d SLOs were kept, less than --min-kept %d", kept, len(report.Rows), f.minKept)
	}
	return nil
}

// checkMargin returns an error for a margin out of range.
func checkMargin(margin float64) error {
	if !(margin >= 0 && margin <= manager.MaxSLOMargin) {
		return usagef("--slo-margin %v: want 0 to %v", margin, manager.MaxSLOMargin)
	}
	return nil
}
