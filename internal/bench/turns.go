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

// Turns measures cells turn by turn, so that a noisy neighbour hits all alike:
// each lap gives each cell one slice of duration/Laps, by a call of slice with the
// cell's number. A first, shorter lap is not counted. A cell's result is the second
// fastest of its slices, whole: neighbours only slow a slice down, and the fastest
// may be luck. progress may be nil.
func Turns(ctx context.Context, cells int, duration time.Duration, progress ycsb.Progress,
	slice func(ctx context.Context, cell int, lasts time.Duration) (Sample, error),
) ([]Sample, error) {
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
	results := make([]Sample, cells)
	for i, all := range samples {
		slices.SortFunc(all, func(a, b Sample) int { return cmp.Compare(a.Mops, b.Mops) })
		results[i] = all[len(all)-2]
	}
	return results, nil
}

// allocations is how many objects this process has allocated so far.
func allocations() uint64 {
	s := [1]metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(s[:])
	return s[0].Value.Uint64()
}
