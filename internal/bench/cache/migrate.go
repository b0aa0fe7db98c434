package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/redytier"
)

// MigrateSpec says what to measure of caches that move from VM to VM: idle, and
// under each operation, for each way to move, each several times.
type MigrateSpec struct {
	Transport, Net string
	Capacity       int64 // bytes
	RegionSize     int64 // bytes
	Size           int   // of a request, in bytes
	Depth          int   // requests in flight to each region
	// Rate is the number of requests per second offered to each region, evenly. This is an
	// open loop: it makes up for a few milliseconds without requests, and drops requests that
	// are later than that. 0 means a closed loop.
	Rate float64
	// Closed, with a Rate, measures each operation and migration once more on the same cache,
	// in a closed loop with that many requests in flight to each region, for half of the time.
	// An open loop may offer too little for a migration to show. 0: not once more.
	Closed int
	Ops    []Op // Idle, Read, Write
	// Moving is the number of regions that move; each region then has its own VM. 0: the
	// regions on the first region's VM move.
	Moving     int
	Migrations []redytier.Migration
	Rounds     int
	Lasts      time.Duration  // of the load before the migration, after it, and after the plain copy
	Pending    func([]string) // redytier.Config.Progress
}

// Check returns an error if the spec makes no sense.
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
		return fmt.Errorf("%d pending requests to each of %d regions: want 1 to %d in all", s.Depth, regions, redytier.MaxDepth)
	case s.Moving < 0 || s.Moving > regions:
		return fmt.Errorf("%d of %d regions move: want 0 to %d", s.Moving, regions, regions)
	case len(s.Ops) == 0:
		return errors.New("no operations to measure")
	case !(s.Rate >= 0 && s.Rate <= 1e9):
		return fmt.Errorf("%g requests a second to each region: want 0 to 1e9", s.Rate)
	case s.Closed < 0 || regions*s.Closed > redytier.MaxDepth:
		return fmt.Errorf("%d pending requests to each of %d regions in a closed loop: want 0 to %d in all", s.Closed, regions, redytier.MaxDepth)
	case s.Closed > 0 && s.Rate == 0:
		return errors.New("a closed loop besides one that is closed")
	case s.Rounds < 1:
		return fmt.Errorf("%d rounds: want at least one", s.Rounds)
	case s.Lasts < leastLoad:
		return fmt.Errorf("load for %v: want at least %v", s.Lasts, leastLoad)
	}
	return nil
}

// depth returns the largest number of requests in flight to a region.
func (s *MigrateSpec) depth() int { return max(s.Depth, s.Closed) }

// loops returns the loops in which an operation is measured, as specs without Closed.
func (s *MigrateSpec) loops(op Op) []MigrateSpec {
	one := *s
	one.Closed = 0
	if s.Closed == 0 || op == Idle {
		return []MigrateSpec{one}
	}
	closed := one
	closed.Rate, closed.Depth, closed.Lasts = 0, s.Closed, max(s.Lasts/2, leastLoad)
	return []MigrateSpec{one, closed}
}

// leastLoad is the least time of a load for a meaningful throughput.
const leastLoad = 50 * time.Millisecond

// MigrateRow is one kind of migration. Its JSON form is one line. Each figure, ratios too,
// is the median over the rounds, so ratios need not equal the quotient of two columns.
type MigrateRow struct {
	Transport string `json:"transport"`
	Net       string `json:"net"`
	Capacity  int64  `json:"capacity"`
	Regions   int    `json:"regions"`
	Moving    int    `json:"moving,omitempty"` // of the regions; 0: those on one VM
	Pause     string `json:"pause"`            // what pauses: writes, reads+writes; of a region, or of all
	Op        Op     `json:"op"`               // idle, read or write
	Size      int    `json:"size"`
	Depth     int    `json:"depth"` // requests in flight to each region
	// Rate is the number of requests a second offered to each region; 0: a closed loop.
	Rate   float64 `json:"rate,omitempty"`
	Rounds int     `json:"rounds"`

	// Seconds is the time from the first region's first pause to the last region's end.
	// BytesPerSecond is the capacity over that, OfCopy its ratio to a plain copy in
	// memory, measured right before.
	Seconds            float64 `json:"seconds"`
	BytesPerSecond     float64 `json:"bytes_per_second"`
	CopyBytesPerSecond float64 `json:"copy_bytes_per_second"`
	OfCopy             float64 `json:"of_copy"`

	Before Load `json:"before"` // Migrate is called
	Around Load `json:"around"` // Migrate runs, but no region moves: servers prepare or release memory
	During Load `json:"during"` // regions move
	After  Load `json:"after"`  // Migrate has returned
	Beside Load `json:"beside"` // a thread does a plain copy, of as many bytes in as much time

	// Ratios of throughput. PerCPU is DuringOverBefore for each second of the client
	// thread's processor time. BesideOverBefore is the cost of a copy to an unrelated
	// load: processor time, memory bandwidth, processor cache. DuringOverBeside is the
	// cost of a migration beyond that.
	DuringOverBefore float64 `json:"during_over_before,omitempty"`
	PerCPU           float64 `json:"during_over_before_per_cpu,omitempty"`
	AroundOverBefore float64 `json:"around_over_before,omitempty"`
	BesideOverBefore float64 `json:"beside_over_before,omitempty"`
	DuringOverBeside float64 `json:"during_over_beside,omitempty"`

	// Series is the throughput, in Mop/s, of each 5 ms or so of the last round, from
	// the load's beginning; MovesAt is the slice in which the first region paused.
	Series  []float64 `json:"series,omitempty"`
	MovesAt int       `json:"moves_at,omitempty"`
}

// figures returns the fields that are medians.
func (r *MigrateRow) figures() []*float64 {
	all := []*float64{
		&r.Seconds, &r.BytesPerSecond, &r.CopyBytesPerSecond, &r.OfCopy,
		&r.DuringOverBefore, &r.PerCPU, &r.AroundOverBefore, &r.BesideOverBefore, &r.DuringOverBeside,
	}
	for _, l := range []*Load{&r.Before, &r.Around, &r.During, &r.After, &r.Beside} {
		all = append(all, &l.Mops, &l.CPU, &l.P99Us)
	}
	return all
}

// medians returns the row of a kind of migration from its rounds.
func medians(rounds []MigrateRow) MigrateRow {
	row := rounds[len(rounds)-1]
	row.Rounds = len(rounds)
	for i, figure := range row.figures() {
		values := make([]float64, len(rounds))
		for j := range rounds {
			values[j] = *rounds[j].figures()[i]
		}
		*figure = bench.Median(values)
	}
	return row
}

// Load is the throughput of a client thread in a part of the run.
type Load struct {
	Mops float64 `json:"mops"`
	CPU  float64 `json:"cpu"` // its share of a processor
	// P99Us is the 99th percentile of the latency of an open loop, from the time at which a
	// request was due until it completed, or was dropped. 0: a closed loop, or no request.
	P99Us float64 `json:"p99_us,omitempty"`
}

// over returns the ratio of throughput; 0 if there is none.
func (l Load) over(o Load) float64 { return ratio(l.Mops, o.Mops) }

// ratio returns a over b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Idle is a migration of an unused cache.
const Idle Op = "idle"

// RunMigrations carries out a spec on caches in memory that mgr finds.
func RunMigrations(ctx context.Context, mgr redytier.Manager, spec MigrateSpec, log *slog.Logger) ([]MigrateRow, error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	yard, err := newYardstick()
	if err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	defer yard.close()
	var rows []MigrateRow
	for _, m := range spec.Migrations {
		row, err := spec.migrate(ctx, mgr, m, yard, log)
		if err != nil {
			return nil, fmt.Errorf("cachebench: %w", err)
		}
		rows = append(rows, row...)
	}
	return rows, nil
}

// migrate moves one cache several times.
func (s *MigrateSpec) migrate(ctx context.Context, mgr redytier.Manager, m redytier.Migration, yard *yardstick, log *slog.Logger) (rows []MigrateRow, err error) {
	c, err := redytier.Create(ctx, mgr, redytier.Config{
		Capacity: s.Capacity, RegionSize: s.RegionSize, Transport: s.Transport, Net: s.Net, Migration: m, Logger: log, Progress: s.Pending,
		Configuration: redytier.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: s.depth()},
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
	for _, op := range s.Ops {
		for _, loop := range s.loops(op) {
			rounds := make([]MigrateRow, s.Rounds)
			for i := range rounds {
				if rounds[i], err = loop.once(ctx, c, op, yard); err != nil {
					return nil, fmt.Errorf("%s: %w", op, err)
				}
			}
			row := medians(rounds)
			row.Transport, row.Net, row.Pause = c.Transport(), s.Net, pauseString(m)
			rows = append(rows, row)
		}
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

// once moves the cache to another VM and then runs a plain copy.
func (s *MigrateSpec) once(ctx context.Context, c *redytier.Cache, op Op, yard *yardstick) (row MigrateRow, err error) {
	row = MigrateRow{Capacity: s.Capacity, Regions: len(c.Regions()), Moving: s.Moving, Op: op, Size: s.Size, Depth: s.Depth, Rate: s.Rate, CopyBytesPerSecond: yard.rate()}
	var load *migrant
	if op != Idle {
		if load, err = s.startLoad(c, op); err != nil {
			return row, err
		}
		defer func() { err = errors.Join(err, load.close()) }()
		clock.Sleep(ctx, s.Lasts)
	}
	var at course
	vms, err := s.leaves(c)
	if err != nil {
		return row, err
	}
	if err := at.migrate(ctx, c, vms); err != nil {
		return row, err
	}
	took := at.to.Sub(at.from)
	row.Seconds = took.Seconds()
	row.BytesPerSecond = float64(s.moved()) / row.Seconds
	row.OfCopy = row.BytesPerSecond / row.CopyBytesPerSecond
	if load == nil {
		return row, nil
	}
	clock.Sleep(ctx, s.Lasts)
	at.copies = time.Now()
	yard.copyWithin(ctx, s.moved(), took)
	at.copied = time.Now()
	clock.Sleep(ctx, s.Lasts)
	if err := load.stop(); err != nil {
		return row, err
	}
	load.setLoads(&row, &at)
	return row, nil
}

// leaves returns the VMs that a cache leaves in a round.
func (s *MigrateSpec) leaves(c *redytier.Cache) ([]string, error) {
	regions := c.Regions()
	if s.Moving == 0 {
		return []string{regions[0].VM}, nil
	}
	var vms []string
	for i := range regions {
		if slices.ContainsFunc(regions[:i], func(r redytier.RegionInfo) bool { return r.VM == regions[i].VM }) {
			return nil, fmt.Errorf("VM %s has more than one region", regions[i].VM)
		}
		if i < s.Moving {
			vms = append(vms, regions[i].VM)
		}
	}
	return vms, nil
}

// moved returns the number of bytes that move in a round: all, unless Moving is set.
func (s *MigrateSpec) moved() int64 {
	if s.Moving == 0 {
		return s.Capacity
	}
	return int64(s.Moving) * s.RegionSize
}

// course has the times of a round.
type course struct {
	called, from, to, returned time.Time // Migrate, and regions' moving
	copies, copied             time.Time // the plain copy
}

// migrate moves the cache away from VMs. If this thread did not run while regions moved, the
// whole of Migrate counts.
func (at *course) migrate(ctx context.Context, c *redytier.Cache, vms []string) error {
	over := make(chan error, 1)
	at.called = time.Now()
	go func() {
		err := c.Migrate(ctx, vms...)
		at.returned = time.Now()
		over <- err
	}()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-over:
			if !at.to.After(at.from) {
				at.from, at.to = at.called, at.returned
			}
			return err
		case <-look.C:
			for _, r := range c.Regions() {
				if r.State != redytier.Stable {
					at.to = time.Now()
					if at.from.IsZero() {
						at.from = at.to
					}
					break
				}
			}
		}
	}
}

// draw returns an address in the tag's region.
func (s *MigrateSpec) draw(rng *rand.PCG, tag uint64) int64 {
	places := uint64(s.RegionSize) / uint64(s.Size)
	region := int64(tag) / int64(s.Depth)
	return region*s.RegionSize + int64(rng.Uint64()>>32*places>>32)*int64(s.Size)
}
