package cachebench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/redykv/redykv/redytier"
)

// MigrateSpec says what to measure of caches that move from VM to VM: once idle, and
// once under each operation, for each way to move.
type MigrateSpec struct {
	Transport, Net string
	Capacity       int64 // bytes
	RegionSize     int64 // bytes
	Size           int   // of a request, in bytes
	Depth          int   // requests under way to each region
	Migrations     []redytier.Migration
	Lasts          time.Duration // of the load before the migration, and after it
}

// Check refuses what makes no sense, in words for who asked for it.
func (s *MigrateSpec) Check() error {
	regions := 0
	if s.RegionSize > 0 {
		regions = int((s.Capacity-1)/s.RegionSize) + 1
	}
	switch {
	case s.Size < 1 || s.Size > MaxSize:
		return fmt.Errorf("size of %d bytes: want 1 to %d", s.Size, MaxSize)
	case s.RegionSize < int64(s.Size) || s.Capacity%s.RegionSize != 0 || s.Capacity < s.RegionSize:
		return fmt.Errorf("regions of %d bytes in a capacity of %d: want whole ones, no smaller than a request", s.RegionSize, s.Capacity)
	case s.Depth < 1 || regions*s.Depth > redytier.MaxDepth:
		return fmt.Errorf("%d requests under way to each of %d regions: want 1 to %d in all", s.Depth, regions, redytier.MaxDepth)
	case s.Lasts < 10*tickEvery:
		return fmt.Errorf("load for %v: want at least %v", s.Lasts, 10*tickEvery)
	}
	return nil
}

// MigrateRow is one migration. Its JSON form is one line.
type MigrateRow struct {
	Transport string `json:"transport"`
	Net       string `json:"net"`
	Capacity  int64  `json:"capacity"`
	Regions   int    `json:"regions"`
	Pause     string `json:"pause"` // what is held: writes, reads+writes; of a region, or of all
	Op        Op     `json:"op"`    // idle, read or write
	Size      int    `json:"size"`
	Depth     int    `json:"depth"` // requests under way to each region

	// Seconds pass from the first region's first pause to the last region's end:
	// the other VM runs by then. BytesPerSecond is the capacity over that, OfCopy
	// that over the rate of a plain copy in memory, measured right before.
	Seconds            float64 `json:"seconds"`
	BytesPerSecond     float64 `json:"bytes_per_second"`
	CopyBytesPerSecond float64 `json:"copy_bytes_per_second"`
	OfCopy             float64 `json:"of_copy"`

	Before Load `json:"before"`
	During Load `json:"during"`
	After  Load `json:"after"`
	// DuringOverBefore is of throughput. PerCPU is the same of operations for each
	// second of the client thread's processor time: the copy's own demand for
	// processors is not in it.
	DuringOverBefore float64 `json:"during_over_before,omitempty"`
	PerCPU           float64 `json:"during_over_before_per_cpu,omitempty"`

	// Series is the throughput, in Mop/s, of each 5 ms or so, from the load's
	// beginning; MovesAt is the slice in which the first region paused.
	Series  []float64 `json:"series,omitempty"`
	MovesAt int       `json:"moves_at,omitempty"`
}

// Load is what a client thread did in a part of the run.
type Load struct {
	Mops float64 `json:"mops"`
	CPU  float64 `json:"cpu"` // share of a processor that it had
}

// Idle is a migration of a cache that nobody uses.
const Idle Op = "idle"

// RunMigrations measures what spec asks for, on caches that mgr finds memory for.
func RunMigrations(ctx context.Context, mgr redytier.Manager, spec MigrateSpec, log *slog.Logger) ([]MigrateRow, error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	var rows []MigrateRow
	for _, m := range spec.Migrations {
		row, err := spec.migrate(ctx, mgr, m, log)
		if err != nil {
			return nil, fmt.Errorf("cachebench: %w", err)
		}
		rows = append(rows, row...)
	}
	return rows, nil
}

// migrate moves one cache several times.
func (s *MigrateSpec) migrate(ctx context.Context, mgr redytier.Manager, m redytier.Migration, log *slog.Logger) (rows []MigrateRow, err error) {
	c, err := redytier.Create(ctx, mgr, redytier.Config{
		Capacity: s.Capacity, RegionSize: s.RegionSize, Transport: s.Transport, Net: s.Net, Migration: m, Logger: log,
		Configuration: redytier.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: s.Depth},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = errors.Join(err, c.Delete(ctx))
	}()
	if err := fill(ctx, c); err != nil {
		return nil, err
	}
	for _, op := range []Op{Idle, Read, Write} {
		row, err := s.once(ctx, c, op)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		row.Transport, row.Net, row.Pause = c.Transport(), s.Net, pauseString(m)
		rows = append(rows, row)
	}
	return rows, nil
}

func pauseString(m redytier.Migration) string {
	what, of := "writes", "each region"
	if m.PauseReads {
		what = "reads+writes"
	}
	if m.PauseAll {
		of = "all regions"
	}
	return what + " of " + of
}

// once moves the cache to another VM.
func (s *MigrateSpec) once(ctx context.Context, c *redytier.Cache, op Op) (row MigrateRow, err error) {
	row = MigrateRow{Capacity: s.Capacity, Regions: len(c.Regions()), Op: op, Size: s.Size, Depth: s.Depth, CopyBytesPerSecond: copyRate()}
	var load *migrant
	if op != Idle {
		if load, err = s.startLoad(c, op); err != nil {
			return row, err
		}
		defer func() { err = errors.Join(err, load.close()) }()
		wait(ctx, s.Lasts)
	}
	from, to, err := moved(ctx, c)
	if err != nil {
		return row, err
	}
	row.Seconds = to.Sub(from).Seconds()
	row.BytesPerSecond = float64(s.Capacity) / row.Seconds
	row.OfCopy = row.BytesPerSecond / row.CopyBytesPerSecond
	if load == nil {
		return row, nil
	}
	wait(ctx, s.Lasts)
	if err := load.stop(); err != nil {
		return row, err
	}
	load.tell(&row, from, to)
	return row, nil
}

// moved moves the cache away from the VM of its first region, and says when regions
// began to move, and were through.
func moved(ctx context.Context, c *redytier.Cache) (from, to time.Time, err error) {
	over := make(chan error, 1)
	go func() { over <- c.Migrate(ctx, c.Regions()[0].VM) }()
	look := time.NewTicker(500 * time.Microsecond)
	defer look.Stop()
	for {
		select {
		case err := <-over:
			if err == nil && from.IsZero() {
				err = errors.New("nothing moved, or too fast to be seen")
			}
			return from, to, err
		case <-look.C:
			for _, r := range c.Regions() {
				if r.State != redytier.Stable {
					to = time.Now()
					if from.IsZero() {
						from = to
					}
				}
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// copyRate is the rate in bytes a second of a plain copy between memory that has
// been touched, and is too large for caches: the best of some.
func copyRate() float64 {
	src, dst := make([]byte, 256<<20), make([]byte, 256<<20)
	best := 0.0
	for i := range 4 {
		began := time.Now()
		copy(dst, src)
		if took := time.Since(began).Seconds(); i > 0 { // the first touches it
			best = max(best, float64(len(src))/took)
		}
	}
	return best
}

// draw is an address in the region that a tag belongs to.
func (s *MigrateSpec) draw(rng *rand.PCG, tag uint64) int64 {
	slots := uint64(s.RegionSize) / uint64(s.Size)
	region := int64(tag) / int64(s.Depth)
	return region*s.RegionSize + int64(rng.Uint64()>>32*slots>>32)*int64(s.Size)
}
