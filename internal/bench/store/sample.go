package store

import (
	"cmp"
	"slices"
	"time"
)

// sample is what one slice of a cell has shown.
type sample struct {
	mops  float64 // of all threads together
	share float64 // of the time, that the threads had a processor
}

// tally is what one thread has done in a slice.
type tally struct {
	operations int
	took, cpu  time.Duration
}

// sampleOf puts the threads of a slice together. A system that does not tell how
// long a thread had a processor is taken to be all theirs.
func sampleOf(threads []tally) (s sample) {
	var took, cpu time.Duration
	for _, t := range threads {
		s.mops += float64(t.operations) / 1e6 / t.took.Seconds()
		took += t.took
		cpu += t.cpu
	}
	if cpu == 0 {
		cpu = took
	}
	s.share = min(float64(cpu)/float64(took), 1)
	return s
}

const (
	// calm is the share of its time for which a thread must have had a processor
	// for its slice to say something about the store and not about neighbours.
	calm = 0.95
	// enough is how many slices are looked at, calm or not.
	enough = 3
)

// calmest returns the calm slices, or the calmest if there are not enough of
// them, in order of their throughput.
func calmest(samples []sample) []sample {
	sorted := slices.SortedStableFunc(slices.Values(samples), func(a, b sample) int { return cmp.Compare(b.share, a.share) })
	n := 0
	for n < len(sorted) && (sorted[n].share >= calm || n < enough) {
		n++
	}
	sorted = sorted[:n]
	slices.SortFunc(sorted, func(a, b sample) int { return cmp.Compare(a.mops, b.mops) })
	return sorted
}

// median is the middle of samples in order, zero if there are none.
func median(sorted []sample) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2].mops
}
