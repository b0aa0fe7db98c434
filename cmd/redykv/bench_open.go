package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	openbench "github.com/redykv/redykv/internal/bench/open"
	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// benchOpenFlags are the flags of bench open.
type benchOpenFlags struct {
	spec              openbench.Spec
	memory, valueSize units.Size
	after             []string
	dir               string
	jsonPath          string
	lifeFlags
}

func newBenchOpenCmd() *cobra.Command {
	f := benchOpenFlags{memory: 1 << 30, valueSize: 8, lifeFlags: lifeFlags{log: logFlags{level: slog.LevelWarn}}}
	var all []string
	for _, e := range openbench.Endings {
		all = append(all, string(e))
	}
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Measure how long the opening of a store takes, compared with its disk",
		Long: `Loads a store in a process of its own, which then ends, and opens it in others. Before,
the store was

  crash        killed after a commit: there is no copy of the index, and all of the log is read
  fold-over    killed after a checkpoint of that kind
  snapshot     killed after a checkpoint of that kind
  incremental  killed after a snapshot, an update of a hundredth of the records, and a
               checkpoint of that kind
  close        closed

Nothing of it is in the page cache. Each row shows the bytes that were read from the disk,
and the rate compared with that of reading as many bytes alone.`,
		Example: "  redykv bench open --records 250000000 --json open.json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.Int64Var(&f.spec.Records, "records", 10_000_000, "records to load")
	flags.Var(&f.valueSize, "value-size", "size of each value; keys have 8 bytes")
	flags.Var(&f.memory, "memory", "memory of the store")
	flags.StringSliceVar(&f.after, "after", all, "how the store ended before")
	flags.IntVar(&f.spec.Rounds, "rounds", 3, "openings of each kind")
	flags.StringVar(&f.dir, "dir", "", "directory on the SSD for the store's files, which are removed afterwards (default: the one for temporary files)")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	f.add(cmd)
	return cmd
}

func (f *benchOpenFlags) run(cmd *cobra.Command) (err error) {
	if f.life != "" {
		return f.live(cmd)
	}
	s := &f.spec
	s.Memory, s.ValueSize = int64(f.memory), int(f.valueSize)
	if s.Endings, err = parseAll(f.after, named("ending", openbench.Endings)); err != nil {
		return usageError{err}
	}
	slices.SortFunc(s.Endings, func(a, b openbench.Ending) int {
		return slices.Index(openbench.Endings, a) - slices.Index(openbench.Endings, b)
	})
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	dir, err := dirs.MakeTemp(f.dir, "redykv-bench-open-")
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	s.Dir = dir.Path
	s.Start = func(ctx context.Context, l openbench.Life) (*bench.Child, error) { return f.start(ctx, cmd, l) }
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		return openbench.Run(cmd.Context(), *s, p)
	})
}

// live is a store's process.
func (f *benchOpenFlags) live(cmd *cobra.Command) error {
	var l openbench.Life
	if err := f.parse(&l); err != nil {
		return err
	}
	ctx := bench.UntilEnd(cmd.Context(), os.Stdin)
	return openbench.Live(ctx, l, f.log.logger(cmd), func(r openbench.Result) error { return reportLife(cmd, r) })
}
