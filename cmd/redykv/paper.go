package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/paper"
	"github.com/redykv/redykv/internal/paper/report"
	"github.com/redykv/redykv/ycsb"
)

func newPaperCmd() *cobra.Command {
	cmd := newGroup("paper", "Reproduce the figures of the Redy paper on this machine",
		newPaperListCmd(), newPaperRunCmd(), newPaperJudgeCmd(), newPaperDiffCmd())
	cmd.PersistentPreRun = func(*cobra.Command, []string) {
		slog.SetLogLoggerLevel(slog.LevelWarn) // as for ycsb
	}
	return cmd
}

func newPaperListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the experiments",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return table(cmd.OutOrStdout(), "name\tsection\tclaims\ttitle", func(t *tabwriter.Writer) {
				for _, f := range paper.Figures() {
					fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", f.Name, f.Section, len(f.Claims), f.Title)
				}
			})
		},
	}
}

// paperRunFlags are the flags of paper run.
type paperRunFlags struct {
	scale, out, dir string
	transport, net  string
	trace           string
	again           bool
	reportOnly      bool
	log             logFlags
}

func newPaperRunCmd() *cobra.Command {
	f := paperRunFlags{log: logFlags{level: slog.LevelWarn}}
	cmd := &cobra.Command{
		Use:   "run NAME... | all",
		Short: "Run experiments and write a report",
		Long: `Runs experiments, named as in paper list, and writes into the directory --out

  report.html         one page with plots, and the paper's numbers beside ours
  claims.jsonl        the paper's claims, our figures, and why some differ
  measurements.jsonl  every point of every round
  measurements.csv    the same as a table
  run.json            machine, date and settings

Each measurement is saved at once: the same command continues an interrupted run. The
report has all measurements in the directory. The next run removes files that a killed
one left on disk and in memory.

  --scale quick    10 million records; takes minutes
  --scale machine  what fits this machine's memory and disk
  --scale full     the paper's sizes; what does not fit this machine is left out

Redy's memory is that of other processes on this machine. What a claim compares is
measured in one turn, and again in every round. A number is the median of the rounds, and
a round's is the mean of all that it measured after its warm-up, or for caches without a
store the slice with the median throughput. An SLO has one round, and a claim about all
SLOs, or about a trace, names its statistic.

A claim holds or does not, within its bound: near the paper's number; where this project
has measured so much more with --net rdma that the paper's could hardly fail, near its
worst round; or that one is more than the other, where the paper says no more. Bounds
over SSD and SMB are near this project's disk and file server: a faster disk fails them.
So does a round in which nothing was done. Other verdicts do not count: not measured; a
constant, of the network model or the experiment; reported, a number that other hardware
need not reach. A reason is given if this run has measured it. If a claim of the
experiments does not hold, the exit code is 1, after the report.`,
		Example: "  redykv paper run fig18a --scale quick\n" +
			"  redykv paper run all --scale machine --out report-machine",
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.scale, "scale", paper.Quick, "size of the experiments: "+strings.Join(paper.ScaleNames, ", "))
	flags.StringVar(&f.out, "out", "redykv-paper", "directory for the report and its data")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for stores' files, which are removed afterwards (default: the directory for temporary files)")
	flags.StringVar(&f.transport, "transport", ycsb.TransportSHM, "how Redy's memory is reached: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.net, "net", "rdma", "model of the network to Redy: "+fabric.ModelUsage)
	flags.StringVar(&f.trace, "trace", "", "`file` with a trace of VMs, in the format of the Azure public data set (vmtable.csv); default: a generated one")
	flags.BoolVar(&f.again, "again", false, "repeat measurements that the directory already has")
	addReportOnly(flags, &f.reportOnly)
	f.log.add(flags)
	return cmd
}

// addReportOnly adds the flag of the commands that judge claims.
func addReportOnly(flags *pflag.FlagSet, reportOnly *bool) {
	flags.BoolVar(reportOnly, "report-only", false, "exit with code 0 also if claims do not hold")
}

func (f *paperRunFlags) run(cmd *cobra.Command, names []string) (err error) {
	figures, err := paper.Choose(names)
	if err != nil {
		return usageError{err}
	}
	network, err := fabric.ParseNetwork(f.net)
	if err != nil {
		return usageError{err}
	}
	if !slices.Contains(transport.Names(), f.transport) {
		return usagef("unknown transport %q: want one of %s", f.transport, strings.Join(transport.Names(), ", "))
	}
	if f.trace != "" {
		if _, err := os.Stat(f.trace); err != nil {
			return usagef("--trace: %w", err)
		}
	}
	work, err := makeWorkDir(f.dir, "redykv-paper-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.remove()) }()
	stock, err := paper.StockOf(work.dir.Path)
	if err != nil {
		return err
	}
	scale, err := paper.NewScale(f.scale, stock)
	if err != nil {
		return usageError{err}
	}
	w, err := paper.OpenWorkspace(f.out, paper.Head{Scale: scale, Transport: f.transport, Net: network.String(), Trace: f.trace})
	if errors.Is(err, paper.ErrOtherRun) {
		return usagef("--out: %w: name another directory", err)
	}
	if err != nil {
		return err
	}
	bench := &paper.Bench{
		Transport: f.transport, Net: network.String(), Dir: f.out, Work: work.dir.Path, Stock: stock, Trace: f.trace, Log: f.log.logger(cmd),
		Raw: func(_ context.Context, p fabric.Provider, memory int) (string, func() error, error) {
			return startFabric(cmd, p, memory)
		},
	}
	progress := newPaperProgress(cmd.ErrOrStderr())
	err = paper.Run(cmd.Context(), w, bench, figures, f.again, paper.Watcher{
		Turn: progress.turn,
		Trial: func(name string, turns int, took time.Duration) {
			progress.wipe()
			if turns > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: measured in %v\n", name, took.Round(time.Second))
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: was measured before\n", name)
			}
		},
	})
	progress.wipe()
	// A partial run makes a report too.
	verdicts, reportErr := writePaperReport(f.out, w.Head, paper.NewData(w.Journal.All()))
	if err = errors.Join(orInterrupted(cmd.Context(), err), reportErr); err != nil {
		return err
	}
	return printVerdicts(cmd.OutOrStdout(), f.out, w.Head, figures, verdicts, f.reportOnly)
}

// writePaperReport writes the report of a run into its directory, and returns the verdicts on the
// paper's claims.
func writePaperReport(dir string, head paper.Head, data *paper.Data) ([]paper.Verdict, error) {
	var verdicts []paper.Verdict
	for _, f := range paper.Figures() {
		if len(data.Trial(f.Trial)) > 0 || slices.ContainsFunc(head.LeftOut, func(l paper.LeftOut) bool { return l.Trial == f.Trial }) {
			verdicts = append(verdicts, paper.Judge(f, data, head.LeftOut)...)
		}
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{paper.CSVFile, func(out io.Writer) error { return paper.WriteCSV(out, data.All()) }},
		{paper.ClaimsFile, func(out io.Writer) error { return bench.WriteJSON(out, verdicts) }},
		{paper.ReportFile, func(out io.Writer) error { return report.WriteHTML(out, head, paper.Figures(), data) }},
	} {
		if err := writeOutput(filepath.Join(dir, file.name), file.write); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// printVerdicts prints the verdicts on the claims of some figures of the run in dir. It returns an
// error if one of them does not hold, unless the command only reports.
func printVerdicts(out io.Writer, dir string, head paper.Head, figures []paper.Figure, verdicts []paper.Verdict, reportOnly bool) error {
	for _, l := range head.LeftOut {
		if slices.ContainsFunc(figures, func(f paper.Figure) bool { return f.Trial == l.Trial }) {
			fmt.Fprintf(out, "%s: left out: %v\n", l.Trial, l)
		}
	}
	fmt.Fprintln(out)
	verdicts = slices.DeleteFunc(slices.Clone(verdicts), func(v paper.Verdict) bool {
		return !slices.ContainsFunc(figures, func(f paper.Figure) bool { return f.Name == v.Figure })
	})
	err := table(out, "figure\tclaim\tpaper\tours (median of rounds)\tunit\tverdict", func(t *tabwriter.Writer) {
		for _, v := range verdicts {
			verdict := string(v.Outcome)
			if v.Warning != "" {
				verdict += ", but the rounds disagree"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", v.Figure, v.Claim, optional(v.Paper), optional(v.Ours), v.Unit, verdict)
		}
	})
	if err != nil {
		return err
	}
	tally := paper.Count(verdicts)
	if _, err := fmt.Fprintf(out, "\n%v\nreport: %s\n", tally, filepath.Join(dir, paper.ReportFile)); err != nil {
		return fmt.Errorf("writing the verdicts: %w", err)
	}
	if fails := tally[paper.Fails]; fails > 0 && !reportOnly {
		return fmt.Errorf("%d of %d claims that were judged do not hold", fails, tally[paper.Holds]+fails)
	}
	return nil
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *v)
}

func newPaperJudgeCmd() *cobra.Command {
	var reportOnly bool
	cmd := &cobra.Command{
		Use:   "judge DIR",
		Short: "Judge a run again, with the bounds of this program",
		Long: `Reads the measurements in a directory that paper run wrote, judges the paper's claims
by the bounds of this program, and writes report.html, claims.jsonl and measurements.csv
again. Nothing is measured, and measurements.jsonl and run.json stay as they are. The
revision that measured and the one that judges are printed, and stand in the report. If a
claim does not hold, the exit code is 1.`,
		Example: "  redykv paper judge report-machine",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			head, data, err := paper.ReadRun(dir)
			if err != nil {
				return err
			}
			verdicts, err := writePaperReport(dir, head, data)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "revision: %s\n", head.Revisions())
			return printVerdicts(cmd.OutOrStdout(), dir, head, paper.Figures(), verdicts, reportOnly)
		},
	}
	addReportOnly(cmd.Flags(), &reportOnly)
	return cmd
}

func newPaperDiffCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two runs",
		Long: `Compares the measurements in two directories that paper run wrote, and prints what
changed beyond noise. A figure has changed if the rounds of the two runs do not overlap
and the medians differ by at least 5 %.`,
		Args: usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var heads [2]paper.Head
			var data [2]*paper.Data
			for i, dir := range args {
				var err error
				if heads[i], data[i], err = paper.ReadRun(dir); err != nil {
					return err
				}
			}
			return paper.Diff(heads[0], heads[1], data[0], data[1]).Write(cmd.OutOrStdout())
		},
	}
}
