package bench

import (
	"cmp"
	"context"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/redykv/redykv/ycsb"
)

// Laps is how many slices the time of a cell is cut into.
const Laps = 9

// MinDuration is the shortest time of a cell.
const MinDuration = Laps * time.Millisecond

// Turns measures cells turn by turn, as Slices does. A cell's result is the second
// fastest of its slices, whole: neighbours only slow a slice down, and the fastest
// may be luck.
func Turns(ctx context.Context, cells int, duration time.Duration, progress ycsb.Progress, slice Slice) ([]Sample, error) {
	all, err := Slices(ctx, cells, duration, progress, slice)
	if err != nil {
		return nil, err
	}
	results := make([]Sample, cells)
	for i, own := range all {
		slices.SortFunc(own, func(a, b Sample) int { return cmp.Compare(a.Mops, b.Mops) })
		results[i] = own[len(own)-2]
	}
	return results, nil
}

// Slice measures a cell, by its number, for that long.
type Slice func(ctx context.Context, cell int, lasts time.Duration) (Sample, error)

// Slices measures cells turn by turn, so that a noisy neighbour hits all alike:
// each lap gives each cell one slice of duration/Laps. A first, shorter lap is not
// counted. It returns the slices of each cell, a lap each. progress may be nil.
func Slices(ctx context.Context, cells int, duration time.Duration, progress ycsb.Progress, slice Slice) ([][]Sample, error) {
	if progress == nil {
		progress = ycsb.NoProgress{}
	}
	const warm = 4 // the part of a slice that the first lap takes
	lasts := duration / Laps
	progress.Begin("measure", int64(cells)*int64(lasts/warm+Laps*lasts))
	defer progress.End()
	samples := make([][]Sample, cells)
	for lap := range Laps + 1 {
		d := lasts
		if lap == 0 {
			d = lasts / warm
		}
		for i := range cells {
			before := allocations()
			s, err := slice(ctx, i, d)
			if err != nil {
				return nil, err
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			s.Allocs = allocations() - before
			if lap > 0 {
				samples[i] = append(samples[i], s)
			}
			progress.Add(int64(d))
		}
	}
	return samples, nil
}

// allocations is how many objects this process has allocated so far.
func allocations() uint64 {
	s := [1]metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(s[:])
	return s[0].Value.Uint64()
}
