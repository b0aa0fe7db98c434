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
	"github.com/redykv/redykv/ycsb"
)

// benchRefillFlags are the flags of bench refill.
type benchRefillFlags struct {
	spec           cachebench.RefillSpec
	capacity, size units.Size
	dir, connect   string
	jsonPath       string
	log            logFlags
}

func newBenchRefillCmd() *cobra.Command {
	f := benchRefillFlags{capacity: 1 << 30, size: 64, log: logFlags{level: slog.LevelWarn}}
	cmd := &cobra.Command{
		Use:   "refill",
		Short: "Measure how a Redy cache is filled, and the reads beside",
		Long: `Writes a log to a Redy cache above an SSD, and makes the cache lose what it holds, so
that it is refilled from the SSD:

  copy      bytes a second of a plain copy: a file of as many bytes, not in the page
            cache, is read in blocks of 256 KiB and written to a cache, one block after
            the other
  refill    bytes a second of a refill while nothing is read
  populate  bytes a second at which a new cache is filled from that file
  of copy   a rate over that of the plain copy
  share     throughput of reads beside a refill, over that of reads alone, in short
            turns; of reads that the cache answers (redy), and that the SSD answers (ssd)
  beside    bytes a second of the refill beside these reads

Every figure is the median over the rounds; in a round, one follows the other.`,
		Example: "  redykv bench refill --transport tcp --net rdma --threads 2 --json out.json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network between client and server")
	flags.Var(&f.capacity, "capacity", "size of the cache; three times that is used for a time, and 2.25 times on the disk")
	flags.Var(&f.size, "size", "size of a read")
	flags.IntVar(&f.spec.Threads, "threads", 1, "threads that read")
	flags.IntVar(&f.spec.Depth, "depth", 32, "pending reads of each")
	flags.DurationVar(&f.spec.Lasts, "lasts", 250*time.Millisecond, "duration of a turn of reads alone, and of reads beside a refill")
	flags.IntVar(&f.spec.Turns, "turns", 10, "turns of each in a round")
	flags.IntVar(&f.spec.Rounds, "rounds", 5, "measurements of each kind")
	flags.StringVar(&f.dir, "dir", "", "directory for files, which are removed afterwards (default: the directory for temporary files)")
	flags.StringVar(&f.connect, "connect", "", "`URL` of a manager to allocate caches from (default: one in this process)")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	f.log.add(flags)
	return cmd
}

func (f *benchRefillFlags) run(cmd *cobra.Command) (err error) {
	s := &f.spec
	s.Capacity, s.Size = int64(f.capacity), int(f.size)
	if !slices.Contains(transport.Names(), s.Transport) {
		return usagef("unknown transport %q: want one of %s", s.Transport, strings.Join(transport.Names(), ", "))
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	if err := checkURL("--connect", f.connect); err != nil {
		return usageError{err}
	}
	work, err := makeWorkDir(f.dir, "redykv-bench-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.remove()) }()
	s.Dir = work.dir.Path
	log := f.log.logger(cmd)
	return runMeasurement(cmd, f.jsonPath, func(ycsb.Progress) (measurement, error) {
		mgr, end, err := startCacheManager(cmd, f.connect, cachebench.Servers{Transport: s.Transport}, manager.EmbedOptions{Logger: log})
		if err != nil {
			return nil, err
		}
		s.Pending = newPending(cmd.ErrOrStderr())
		row, err := cachebench.RunRefill(cmd.Context(), mgr, *s, log)
		return measuredRows[cachebench.RefillRow]{ofRounds(f.spec.Rounds, "each figure is the median of them"), refillColumns(), []cachebench.RefillRow{row}}, errors.Join(err, end())
	})
}

func refillColumns() []bench.Column[cachebench.RefillRow] {
	type row = cachebench.RefillRow
	return []bench.Column[row]{
		bench.Format("transport", "%s", func(r *row) any { return r.Transport }),
		bench.Format("bytes", "%v", func(r *row) any { return units.Size(r.Capacity) }),
		bench.Format("threads", "%d", func(r *row) any { return r.Threads }),
		bench.Format("copy GB/s", "%.2f", func(r *row) any { return r.CopyBytesPerSecond / 1e9 }),
		bench.Format("refill", "%.2f", func(r *row) any { return r.RefillBytesPerSecond / 1e9 }),
		bench.Format("of copy", "%.2f", func(r *row) any { return r.RefillOfCopy }),
		bench.Format("populate", "%.2f", func(r *row) any { return r.PopulateBytesPerSecond / 1e9 }),
		bench.Format("of copy", "%.2f", func(r *row) any { return r.PopulateOfCopy }),
		bench.Format("redy Mop/s", "%.3f", func(r *row) any { return r.Redy.AloneMops }),
		bench.Format("share", "%.3f", func(r *row) any { return r.Redy.Share }),
		bench.Format("beside GB/s", "%.3f", func(r *row) any { return r.Redy.RefillBytesPerSecond / 1e9 }),
		bench.Format("ssd Mop/s", "%.3f", func(r *row) any { return r.SSD.AloneMops }),
		bench.Format("share", "%.3f", func(r *row) any { return r.SSD.Share }),
		bench.Format("beside GB/s", "%.3f", func(r *row) any { return r.SSD.RefillBytesPerSecond / 1e9 }),
	}
}
