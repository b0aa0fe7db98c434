package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
)

// tally is the work of one thread in a slice.
type tally struct {
	operations int
	took, cpu  time.Duration
}

// sampleOf joins the threads of a slice. Where the system does not tell how long a thread
// had a processor, it counts as having had it all the time.
func sampleOf(threads []tally, seconds float64) bench.Sample {
	s := bench.Sample{Seconds: seconds}
	var took, cpu time.Duration
	for _, t := range threads {
		s.Operations += uint64(t.operations)
		s.Mops += float64(t.operations) / 1e6 / t.took.Seconds()
		took += t.took
		cpu += t.cpu
	}
	if cpu == 0 {
		cpu = took
	}
	s.CPUShare = min(float64(cpu)/float64(took), 1)
	return s
}

const (
	// calm is the share of its time for which the threads of a slice must have had a
	// processor, so that the slice measures the store and not its neighbours.
	calm = 0.95
	// enough is the number of slices that count, calm or not.
	enough = 3
)

// calmest returns the calm slices, or the calmest if there are too few, in order of their
// throughput.
func calmest(samples []bench.Sample) []bench.Sample {
	sorted := slices.SortedStableFunc(slices.Values(samples), func(a, b bench.Sample) int { return cmp.Compare(b.CPUShare, a.CPUShare) })
	n := 0
	for n < len(sorted) && (sorted[n].CPUShare >= calm || n < enough) {
		n++
	}
	sorted = sorted[:n]
	slices.SortFunc(sorted, func(a, b bench.Sample) int { return cmp.Compare(a.Mops, b.Mops) })
	return sorted
}

func medianMops(samples []bench.Sample) float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = s.Mops
	}
	return bench.Median(all)
}
