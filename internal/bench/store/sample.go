package store

import (
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
