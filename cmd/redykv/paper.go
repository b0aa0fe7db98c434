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

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/paper"
	"github.com/redykv/redykv/internal/paper/report"
	"github.com/redykv/redykv/ycsb"
)

func newPaperCmd() *cobra.Command {
	cmd := newGroup("paper", "Reproduce the figures of the Redy paper on this machine",
		newPaperListCmd(), newPaperRunCmd(), newPaperDiffCmd())
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

Redy's memory is that of other processes on this machine. What is compared is measured
alternately, in several rounds; figures are the medians. A verdict of - marks a number
that other hardware need not reach.`,
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
	flags.StringVar(&f.net, "net", "rdma", "model of the network to Redy: rdma (2.9us,100Gbit), none, or a round trip and a bandwidth")
	flags.StringVar(&f.trace, "trace", "", "`file` with a trace of VMs, in the format of the Azure public data set (vmtable.csv); default: a generated one")
	flags.BoolVar(&f.again, "again", false, "repeat measurements that the directory already has")
	f.log.add(flags)
	return cmd
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
	verdicts, reportErr := writePaperReport(w)
	if err = errors.Join(orInterrupted(cmd.Context(), err), reportErr); err != nil {
		return err
	}
	return printVerdicts(cmd.OutOrStdout(), w, figures, verdicts)
}

// writePaperReport writes the report from a workspace's measurements, and returns the verdicts
// on the paper's claims.
func writePaperReport(w *paper.Workspace) ([]paper.Verdict, error) {
	all := w.Journal.All()
	data := paper.NewData(all)
	var verdicts []paper.Verdict
	for _, f := range paper.Figures() {
		if len(data.Trial(f.Trial)) > 0 || slices.ContainsFunc(w.LeftOut, func(l paper.LeftOut) bool { return l.Trial == f.Trial }) {
			verdicts = append(verdicts, paper.Judge(f, data, w.LeftOut)...)
		}
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{paper.CSVFile, func(out io.Writer) error { return paper.WriteCSV(out, all) }},
		{paper.ClaimsFile, func(out io.Writer) error { return bench.WriteJSON(out, verdicts) }},
		{paper.ReportFile, func(out io.Writer) error { return report.WriteHTML(out, w.Head, paper.Figures(), data) }},
	} {
		if err := writeOutput(filepath.Join(w.Dir, file.name), file.write); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// printVerdicts prints the verdicts on the claims of some figures.
func printVerdicts(out io.Writer, w *paper.Workspace, figures []paper.Figure, verdicts []paper.Verdict) error {
	for _, l := range w.LeftOut {
		if slices.ContainsFunc(figures, func(f paper.Figure) bool { return f.Trial == l.Trial }) {
			fmt.Fprintf(out, "%s: left out: %v\n", l.Trial, l)
		}
	}
	fmt.Fprintln(out)
	err := table(out, "figure\tclaim\tpaper\tours\tunit\tverdict", func(t *tabwriter.Writer) {
		for _, v := range verdicts {
			if !slices.ContainsFunc(figures, func(f paper.Figure) bool { return f.Name == v.Figure }) {
				continue
			}
			verdict := "-"
			switch {
			case v.Ours == nil:
				verdict = "not measured"
			case v.Holds != nil && *v.Holds:
				verdict = "holds"
			case v.Holds != nil:
				verdict = "does not hold"
			}
			if v.Warning != "" {
				verdict += ", but the rounds disagree"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", v.Figure, v.Claim, optional(v.Paper), optional(v.Ours), v.Unit, verdict)
		}
	})
	if err == nil {
		_, err = fmt.Fprintf(out, "\nreport: %s\n", filepath.Join(w.Dir, paper.ReportFile))
	}
	return err
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *v)
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
