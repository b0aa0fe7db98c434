package main

import (
	"errors"
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
	"github.com/redykv/redykv/ycsb"
)

// benchMigrateFlags are the flags of bench migrate.
type benchMigrateFlags struct {
	spec                         cachebench.MigrateSpec
	migration                    redytier.Migration
	capacity, region, size, rate units.Size
	connect, jsonPath            string
	log                          logFlags
}

func newBenchMigrateCmd() *cobra.Command {
	f := benchMigrateFlags{capacity: 1 << 30, region: 128 << 20, size: 64, log: logFlags{level: slog.LevelWarn}}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Measure a Redy cache while it moves between VMs",
		Long: `Moves a cache to another VM several times: idle, and while one client thread reads or
writes at random addresses, one-sided. Each region has the same number of requests in
flight, so requests to a paused region do not delay others.

The rate of copying is compared with a plain copy in memory, measured right before, and
the throughput while regions move with the throughput before. Part of the difference is
due to the copying itself, which takes processor time, memory bandwidth and processor
cache. To show this part, a thread that has nothing to do with the cache copies as many
bytes in the same time, under the same load:

  during/before  throughput while regions move, over that before
  per CPU        the same per second of the client's processor time
  beside/before  throughput during the plain copy, over that before
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
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network between client and server")
	flags.Var(&f.capacity, "capacity", "size of the cache")
	flags.Var(&f.region, "region", "size of a region")
	flags.Var(&f.size, "size", "size of a request")
	flags.IntVar(&f.spec.Depth, "depth", 4, "requests in flight to each region")
	flags.DurationVar(&f.spec.Lasts, "lasts", 500*time.Millisecond, "duration of the load before the migration, after it, and after the plain copy")
	flags.IntVar(&f.spec.Rounds, "rounds", 5, "migrations of each kind")
	flags.BoolVar(&f.migration.PauseReads, "pause-reads", false, "pause reads of a region, too, while it moves")
	flags.BoolVar(&f.migration.PauseAll, "pause-all", false, "pause all regions until the last has moved")
	flags.IntVar(&f.migration.Parallel, "parallel", 1, "regions that move at a time")
	flags.Var(&f.rate, "rate", "maximum bytes a second copied from each region (default: no limit)")
	flags.StringVar(&f.connect, "connect", "", "`URL` of a manager to allocate the cache from (default: one in this process)")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	f.log.add(flags)
	return cmd
}

func (f *benchMigrateFlags) run(cmd *cobra.Command) error {
	s := &f.spec
	s.Capacity, s.RegionSize, s.Size = int64(f.capacity), int64(f.region), int(f.size)
	f.migration.BytesPerSecond = int64(f.rate)
	s.Migrations = []redytier.Migration{f.migration}
	s.Ops = []cachebench.Op{cachebench.Idle, cachebench.Read, cachebench.Write}
	if !slices.Contains(transport.Names(), s.Transport) {
		return usagef("unknown transport %q: want one of %s", s.Transport, strings.Join(transport.Names(), ", "))
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	if err := checkURL("--connect", f.connect); err != nil {
		return usageError{err}
	}
	log := f.log.logger(cmd)
	return runMeasurement(cmd, f.jsonPath, func(ycsb.Progress) (measurement, error) {
		mgr, end, err := startCacheManager(cmd, f.connect, cachebench.Servers{Transport: s.Transport}, manager.EmbedOptions{Logger: log})
		if err != nil {
			return nil, err
		}
		s.Pending = newPending(cmd.ErrOrStderr())
		rows, err := cachebench.RunMigrations(cmd.Context(), mgr, *s, log)
		return measuredRows[cachebench.MigrateRow]{ofRounds(f.spec.Rounds, "each figure is the median of them"), migrateColumns(), rows}, errors.Join(err, end())
	})
}

func migrateColumns() []bench.Column[cachebench.MigrateRow] {
	type row = cachebench.MigrateRow
	return []bench.Column[row]{
		bench.Format("transport", "%s", func(r *row) any { return r.Transport }),
		bench.Format("bytes", "%v", func(r *row) any { return units.Size(r.Capacity) }),
		bench.Format("regions", "%d", func(r *row) any { return r.Regions }),
		bench.Format("pause", "%s", func(r *row) any { return r.Pause }),
		bench.Format("op", "%s", func(r *row) any { return r.Op }),
		bench.Format("seconds", "%.3f", func(r *row) any { return r.Seconds }),
		bench.Format("GB/s", "%.2f", func(r *row) any { return r.BytesPerSecond / 1e9 }),
		bench.Format("of copy", "%.2f", func(r *row) any { return r.OfCopy }),
		bench.Format("before Mop/s", "%.3f", func(r *row) any { return r.Before.Mops }),
		bench.Format("during", "%.3f", func(r *row) any { return r.During.Mops }),
		bench.Format("beside", "%.3f", func(r *row) any { return r.Beside.Mops }),
		bench.Format("after", "%.3f", func(r *row) any { return r.After.Mops }),
		bench.Format("CPU during", "%.2f", func(r *row) any { return r.During.CPU }),
		bench.Format("during/before", "%.3f", func(r *row) any { return r.DuringOverBefore }),
		bench.Format("per CPU", "%.3f", func(r *row) any { return r.PerCPU }),
		bench.Format("beside/before", "%.3f", func(r *row) any { return r.BesideOverBefore }),
		bench.Format("during/beside", "%.3f", func(r *row) any { return r.DuringOverBeside }),
		bench.Format("around/before", "%.3f", func(r *row) any { return r.AroundOverBefore }),
	}
}
