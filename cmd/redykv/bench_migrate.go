package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/redytier"
)

// benchMigrateFlags are the flags of bench migrate.
type benchMigrateFlags struct {
	cache                  benchCacheFlags // transport, network, manager
	spec                   cachebench.MigrateSpec
	migration              redytier.Migration
	capacity, region, size units.Size
	rate                   units.Size
}

func newBenchMigrateCmd() *cobra.Command {
	f := benchMigrateFlags{capacity: 1 << 30, region: 128 << 20, size: 64, cache: benchCacheFlags{log: logFlags{level: slog.LevelWarn}}}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Measure a Redy cache that moves from VM to VM",
		Long: `Move a cache to another VM several times: idle, and while one client thread reads
or writes at random addresses, one-sided. Each region has the same number of
requests in flight, so those to a paused region do not delay others.

The rate of copying is compared with a plain copy in memory, measured right before.
Throughput is compared while regions move and before. Part of the difference is due to
the copying itself, which takes processor time, memory bandwidth and processor cache.
So a thread without connection to the cache copies as many bytes in the same time,
under the same load:

  during/before  throughput while regions move, over that before
  per CPU        the same for each second of the client's processor time
  beside/before  throughput beside the plain copy, over that before
  during/beside  the quotient: what a migration costs beyond copying
  around/before  throughput while servers prepare the new memory (zero it) and
                 release the old

Every figure is the median over the rounds; in a round, one follows the other.`,
		Example: "  redykv bench migrate --transport shm --capacity 1GiB --region 128MiB\n" +
			"  redykv bench migrate --pause-all --pause-reads --json out.json",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.cache.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network in between")
	flags.Var(&f.capacity, "capacity", "size of the cache")
	flags.Var(&f.region, "region", "size of a region")
	flags.Var(&f.size, "size", "size of a request")
	flags.IntVar(&f.spec.Depth, "depth", 4, "requests in flight to each region")
	flags.DurationVar(&f.spec.Lasts, "lasts", 500*time.Millisecond, "time of the load before the migration, after it, and after the plain copy")
	flags.IntVar(&f.spec.Rounds, "rounds", 5, "migrations of each kind")
	flags.BoolVar(&f.migration.PauseReads, "pause-reads", false, "pause reads of a region as well while it moves")
	flags.BoolVar(&f.migration.PauseAll, "pause-all", false, "pause all regions until the last has moved")
	flags.IntVar(&f.migration.Parallel, "parallel", 1, "regions that move at a time")
	flags.Var(&f.rate, "rate", "most bytes a second that are copied of each region (default: no limit)")
	flags.StringVar(&f.cache.connect, "connect", "", "`URL` of a manager that finds the memory")
	flags.StringVar(&f.cache.jsonPath, "json", "", "file for the results as JSON lines")
	f.cache.log.add(flags)
	return cmd
}

func (f *benchMigrateFlags) run(cmd *cobra.Command) (err error) {
	s := &f.spec
	s.Transport, s.Capacity, s.RegionSize, s.Size = f.cache.spec.Transport, int64(f.capacity), int64(f.region), int(f.size)
	f.migration.BytesPerSecond = int64(f.rate)
	s.Migrations = []redytier.Migration{f.migration}
	s.Ops = []cachebench.Op{cachebench.Idle, cachebench.Read, cachebench.Write}
	if !slices.Contains(transport.Names(), s.Transport) {
		return usagef("unknown transport %q: want one of %s", s.Transport, strings.Join(transport.Names(), ", "))
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	if err := checkURL("--connect", f.cache.connect); err != nil {
		return usageError{err}
	}
	log := f.cache.log.logger(cmd)
	var out *outputFile
	if f.cache.jsonPath != "" {
		if out, err = openOutput(f.cache.jsonPath); err != nil {
			return err
		}
		defer out.discard()
	}
	mgr, end, err := startCacheManager(cmd, f.cache.connect, cachebench.Servers{Transport: f.cache.spec.Transport}, manager.EmbedOptions{Logger: log})
	if err != nil {
		return err
	}
	rows, err := cachebench.RunMigrations(cmd.Context(), mgr, *s, log)
	if endErr := end(); err == nil {
		err = endErr
	}
	if err != nil {
		return plainly(cmd.Context(), err)
	}
	if err := writeMigrations(cmd.OutOrStdout(), rows); err != nil || out == nil {
		return err
	}
	return out.commit(func(w io.Writer) error { return bench.WriteJSON(w, rows) })
}

func writeMigrations(out io.Writer, rows []cachebench.MigrateRow) error {
	column := func(name, format string, value func(r *cachebench.MigrateRow) any) bench.Column[cachebench.MigrateRow] {
		return bench.Column[cachebench.MigrateRow]{Name: name, Text: func(r *cachebench.MigrateRow) string { return fmt.Sprintf(format, value(r)) }}
	}
	type row = cachebench.MigrateRow
	return bench.WriteTable(out, []bench.Column[row]{
		column("transport", "%s", func(r *row) any { return r.Transport }),
		column("bytes", "%v", func(r *row) any { return units.Size(r.Capacity) }),
		column("regions", "%d", func(r *row) any { return r.Regions }),
		column("pause", "%s", func(r *row) any { return r.Pause }),
		column("op", "%s", func(r *row) any { return r.Op }),
		column("seconds", "%.3f", func(r *row) any { return r.Seconds }),
		column("GB/s", "%.2f", func(r *row) any { return r.BytesPerSecond / 1e9 }),
		column("of copy", "%.2f", func(r *row) any { return r.OfCopy }),
		column("before Mop/s", "%.3f", func(r *row) any { return r.Before.Mops }),
		column("during", "%.3f", func(r *row) any { return r.During.Mops }),
		column("beside", "%.3f", func(r *row) any { return r.Beside.Mops }),
		column("after", "%.3f", func(r *row) any { return r.After.Mops }),
		column("CPU during", "%.2f", func(r *row) any { return r.During.CPU }),
		column("during/before", "%.3f", func(r *row) any { return r.DuringOverBefore }),
		column("per CPU", "%.3f", func(r *row) any { return r.PerCPU }),
		column("beside/before", "%.3f", func(r *row) any { return r.BesideOverBefore }),
		column("during/beside", "%.3f", func(r *row) any { return r.DuringOverBeside }),
		column("around/before", "%.3f", func(r *row) any { return r.AroundOverBefore }),
	}, rows)
}
