package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/redytier"
)

// RefillSpec says what to measure of a cache that is filled: as a tier above an SSD that lacks
// everything, and from a file when it is created.
type RefillSpec struct {
	Transport, Net string
	Dir            string // empty, for the SSD's files and the file
	Capacity       int64  // of the cache, in bytes, at least MinRefill
	Size           int    // of a read, in bytes
	Threads        int    // that read
	Depth          int    // pending reads of each
	Rounds         int
	Turns          int            // of reads alone, and beside a refill, in each round
	Lasts          time.Duration  // of a turn
	Pending        func([]string) // redytier.Config.Progress
}

// MinRefill is the least capacity of a RefillSpec.
const MinRefill = 16 << 20

// Check returns an error if the spec makes no sense.
func (s *RefillSpec) Check() error {
	switch {
	case s.Capacity < MinRefill || s.Capacity%refillBlock != 0:
		return fmt.Errorf("capacity of %d bytes: want a multiple of %d, at least %d", s.Capacity, refillBlock, MinRefill)
	case s.Size < 1 || s.Size > MaxSize:
		return fmt.Errorf("size of %d bytes: want 1 to %d", s.Size, MaxSize)
	case s.Threads < 1 || s.Threads > 1024:
		return fmt.Errorf("%d threads: want 1 to 1024", s.Threads)
	case s.Depth < 1 || s.Depth > redytier.MaxDepth:
		return fmt.Errorf("%d pending reads: want 1 to %d", s.Depth, redytier.MaxDepth)
	case s.Rounds < 1:
		return fmt.Errorf("%d rounds: want at least one", s.Rounds)
	case s.Turns < 1:
		return fmt.Errorf("%d turns: want at least one", s.Turns)
	case s.Lasts < leastLoad:
		return fmt.Errorf("turns of %v: want at least %v", s.Lasts, leastLoad)
	}
	return nil
}

// RefillRow is the result of a RefillSpec. Its JSON form is one line. Each figure, ratios too,
// is the median over the rounds, so ratios need not equal the quotient of two columns.
type RefillRow struct {
	Transport string `json:"transport"`
	Net       string `json:"net"`
	Capacity  int64  `json:"capacity"`
	Size      int    `json:"size"`
	Threads   int    `json:"threads"`
	Depth     int    `json:"depth"`
	Rounds    int    `json:"rounds"`

	// A plain copy reads a file of as many bytes in blocks of 256 KiB, which are not in the page
	// cache, and writes each to a cache of its own, one after the other. OfCopy is the ratio of
	// a rate to its.
	CopyBytesPerSecond   float64 `json:"copy_bytes_per_second"`
	RefillBytesPerSecond float64 `json:"refill_bytes_per_second"`
	RefillOfCopy         float64 `json:"refill_of_copy"`

	// A new cache is filled from the same file.
	PopulateBytesPerSecond float64 `json:"populate_bytes_per_second"`
	PopulateOfCopy         float64 `json:"populate_of_copy"`

	Redy BesideRefill `json:"redy"` // reads that the cache answers
	SSD  BesideRefill `json:"ssd"`  // reads that the SSD answers
}

// BesideRefill compares reads alone with reads beside a refill, in turns. Each figure is that of
// all turns together.
type BesideRefill struct {
	AloneMops  float64 `json:"alone_mops"`
	BesideMops float64 `json:"beside_mops"`
	Share      float64 `json:"share"` // BesideMops over AloneMops
	// RefillBytesPerSecond is the rate of the refill beside the reads.
	RefillBytesPerSecond float64 `json:"refill_bytes_per_second"`
}

// figures returns the fields that are medians.
func (r *RefillRow) figures() []*float64 {
	all := []*float64{
		&r.CopyBytesPerSecond, &r.RefillBytesPerSecond, &r.RefillOfCopy, &r.PopulateBytesPerSecond, &r.PopulateOfCopy,
	}
	for _, b := range []*BesideRefill{&r.Redy, &r.SSD} {
		all = append(all, &b.AloneMops, &b.BesideMops, &b.Share, &b.RefillBytesPerSecond)
	}
	return all
}

// RunRefill carries out a spec on caches that mgr finds.
func RunRefill(ctx context.Context, mgr redytier.Manager, spec RefillSpec, log *slog.Logger) (row RefillRow, err error) {
	if err := spec.Check(); err != nil {
		return row, fmt.Errorf("cachebench: %w", err)
	}
	// A file as large as the cache, and a log that is larger by a quarter.
	if err := machine.Room(spec.Dir, int64(min(2.25*float64(spec.Capacity), 1<<62))); err != nil {
		return row, fmt.Errorf("cachebench: %w", err)
	}
	b, err := openRefill(ctx, mgr, &spec, log)
	if err != nil {
		return row, fmt.Errorf("cachebench: %w", err)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	rounds := make([]RefillRow, spec.Rounds)
	for i := range rounds {
		if rounds[i], err = b.round(ctx); err != nil {
			return row, fmt.Errorf("cachebench: %w", err)
		}
	}
	return medianRefill(rounds), nil
}

// medianRefill returns the row of a spec from its rounds.
func medianRefill(rounds []RefillRow) RefillRow {
	row := rounds[0]
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

// round measures everything once.
func (b *refillBench) round(ctx context.Context) (row RefillRow, err error) {
	s := b.spec
	row = RefillRow{Transport: b.remote.Cache().Transport(), Net: s.Net, Capacity: s.Capacity, Size: s.Size, Threads: s.Threads, Depth: s.Depth}
	bytes := float64(s.Capacity)
	took, err := b.copyFile(ctx)
	if err != nil {
		return row, fmt.Errorf("plain copy: %w", err)
	}
	row.CopyBytesPerSecond = bytes / took.Seconds()
	if err := b.lose(); err != nil {
		return row, err
	}
	missing := b.missing()
	if took, err = b.refilled(ctx, 0); err != nil {
		return row, fmt.Errorf("refill: %w", err)
	}
	row.RefillBytesPerSecond = float64(missing) / took.Seconds()
	row.RefillOfCopy = row.RefillBytesPerSecond / row.CopyBytesPerSecond
	if took, err = b.populate(ctx); err != nil {
		return row, fmt.Errorf("create a cache with a file: %w", err)
	}
	row.PopulateBytesPerSecond = bytes / took.Seconds()
	row.PopulateOfCopy = row.PopulateBytesPerSecond / row.CopyBytesPerSecond
	// The newest quarter of what the cache holds is refilled first. Below the cache's begin only
	// the SSD has the log.
	for _, part := range []struct {
		result   *BesideRefill
		from, to int64
	}{{&row.Redy, b.tail - s.Capacity/4, b.tail}, {&row.SSD, 0, b.tail - s.Capacity}} {
		if *part.result, err = b.beside(ctx, part.from, part.to); err != nil {
			return row, fmt.Errorf("reads beside a refill: %w", err)
		}
	}
	return row, nil
}
