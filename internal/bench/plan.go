package bench

import (
	"context"
	"runtime/metrics"
	"time"
)

// Rounds is the number of rounds of a run, unless it says otherwise.
const Rounds = 9

// MinDuration is the shortest time of a cell.
const MinDuration = Rounds * time.Millisecond

// Plan says how cells are measured: alternately, in rounds of one slice of each cell, so
// that a neighbour on the machine slows all cells alike.
type Plan struct {
	Cells  int
	Rounds int
	Slice  time.Duration // of a cell in a round
	Warmup time.Duration // of a cell, in round 0, which does not count
}

// NewPlan returns a plan that measures each cell for duration.
func NewPlan(cells int, duration time.Duration) Plan {
	slice := duration / Rounds
	return Plan{cells, Rounds, slice, slice / 4}
}

// Cell is one combination to measure: operations of some bytes, and the number in flight.
type Cell[Op any] struct {
	Op          Op
	Size, Depth int
}

// Cells returns each operation with each size and number in flight.
func Cells[Op any](ops []Op, sizes, depths []int) (cells []Cell[Op]) {
	for _, op := range ops {
		for _, size := range sizes {
			for _, depth := range depths {
				cells = append(cells, Cell[Op]{op, size, depth})
			}
		}
	}
	return cells
}

// Slice measures a cell for that long.
type Slice func(ctx context.Context, cell, round int, lasts time.Duration) (Sample, error)

// Run carries out the plan. It returns the slices of each cell, in the order of rounds.
func (p Plan) Run(ctx context.Context, progress Progress, measure Slice) ([][]Sample, error) {
	progress = OrQuiet(progress)
	progress.Begin("measure", int64(p.Cells)*int64(p.Warmup+time.Duration(p.Rounds)*p.Slice))
	defer progress.End()
	samples := make([][]Sample, p.Cells)
	for round := range p.Rounds + 1 {
		lasts := p.Slice
		if round == 0 {
			lasts = p.Warmup
		}
		for i := range samples {
			before := usageNow()
			s, err := measure(ctx, i, round, lasts)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, err
			}
			after := usageNow()
			s.Allocs, s.GCSeconds = after.allocs-before.allocs, after.gcSeconds-before.gcSeconds
			if round > 0 {
				samples[i] = append(samples[i], s)
			}
			progress.Add(int64(lasts))
		}
	}
	return samples, nil
}

// usage is what the Go runtime has used so far.
type usage struct {
	allocs    uint64 // objects; the runtime counts tiny ones apart
	gcSeconds float64
}

func usageNow() usage {
	s := [...]metrics.Sample{
		{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	metrics.Read(s[:])
	return usage{s[0].Value.Uint64() + s[1].Value.Uint64(), s[2].Value.Float64()}
}
