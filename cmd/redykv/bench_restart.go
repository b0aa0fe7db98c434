package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	restartbench "github.com/redykv/redykv/internal/bench/restart"
	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// benchRestartFlags are the flags of bench restart.
type benchRestartFlags struct {
	spec              restartbench.Spec
	memory, valueSize units.Size
	dir               string
	jsonPath          string
	plotPath          string
	lifeFlags
}

func newBenchRestartCmd() *cobra.Command {
	f := benchRestartFlags{memory: 128 << 20, valueSize: 1 << 10, lifeFlags: lifeFlags{log: logFlags{level: slog.LevelWarn}}}
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Measure how soon a killed store is as fast as before",
		Long: `Loads a store of which most is in a Redy cache, in a process of its own, reads records
at random, and kills the process. The next one opens the store and reads until its
throughput is 0.9 of that before the kill:

  warm  it takes up the cache that the killed process has left
  cold  the cache is gone: it gets another one, which is refilled from the SSD

Warm and cold starts take turns. Before each kill all of the log is on Redy. The manager
and its cache servers are processes on this machine.`,
		Example: "  redykv bench restart --memory 256MiB --plot restart.svg --json restart.json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport of the cache: "+strings.Join(transport.BetweenProcesses(), ", "))
	flags.Var(&f.memory, "memory", "memory of the store")
	flags.IntVar(&f.spec.Times, "times", 6, "size of the records on Redy, in multiples of --memory")
	flags.Var(&f.valueSize, "value-size", "size of each value; keys have 8 bytes")
	flags.IntVar(&f.spec.Depth, "depth", 64, "pending reads")
	flags.IntVar(&f.spec.Rounds, "rounds", 3, "starts of each kind")
	flags.DurationVar(&f.spec.Before, "before", 2*time.Second, "duration of the measurement before each kill")
	flags.DurationVar(&f.spec.Patience, "patience", 5*time.Minute, "the longest time until a store is as fast as before")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for the store's files, which are removed afterwards (default: the one for temporary files)")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	flags.StringVar(&f.plotPath, "plot", "", "`file` to write a plot to (SVG)")
	f.add(cmd)
	return cmd
}

func (f *benchRestartFlags) run(cmd *cobra.Command) (err error) {
	if f.life != "" {
		return f.live(cmd)
	}
	s := &f.spec
	s.Memory, s.ValueSize = int64(f.memory), int(f.valueSize)
	if !slices.Contains(transport.BetweenProcesses(), s.Transport) {
		return usagef("--transport %q: want one of %s", s.Transport, strings.Join(transport.BetweenProcesses(), ", "))
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	dir, err := dirs.MakeTemp(f.dir, "redykv-bench-restart-")
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	s.Dir = dir.Path
	chart, err := openOutput(f.plotPath)
	if err != nil {
		return err
	}
	defer chart.discard()
	manager, err := bench.StartChild(cmd.Context(), cmd.ErrOrStderr(), managerReady,
		"manager", "--until-stdin-ends", "--calibrate=false", "--transport", s.Transport, "--listen", "127.0.0.1:0", "--catalog", "memory:", "--log-level", "error")
	if err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	defer func() { err = errors.Join(err, manager.Close()) }()
	s.Manager = manager.Ready
	s.Start = func(ctx context.Context, l restartbench.Life) (*bench.Child, error) { return f.start(ctx, cmd, l) }
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		report, err := restartbench.Run(cmd.Context(), *s, p)
		if err != nil {
			return nil, err
		}
		return report, chart.commit(func(out io.Writer) error {
			_, err := out.Write(report.Plot())
			return err
		})
	})
}

// live is a store's process.
func (f *benchRestartFlags) live(cmd *cobra.Command) error {
	var l restartbench.Life
	if err := f.parse(&l); err != nil {
		return err
	}
	ctx := bench.UntilEnd(cmd.Context(), os.Stdin)
	return restartbench.Live(ctx, l, f.log.logger(cmd), func(r restartbench.Result) error { return reportLife(cmd, r) })
}
