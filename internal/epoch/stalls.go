package epoch

import (
	"sync/atomic"
	"time"
)

// Stalls are the number and the durations of calls of Exclusive, in which sessions wait.
type Stalls struct {
	Count            uint64
	Last, Max, Total time.Duration
}

// stalls are written by Exclusive, one call at a time, and read concurrently.
type stalls struct {
	count            atomic.Uint64
	last, max, total atomic.Int64
}

// add counts a stall that began at since.
func (s *stalls) add(since time.Time) {
	d := int64(time.Since(since))
	s.last.Store(d)
	s.max.Store(max(s.max.Load(), d))
	s.total.Add(d)
	s.count.Add(1)
}

// Stalls returns the stalls since the table was made.
func (t *Table) Stalls() Stalls {
	s := &t.stalls
	return Stalls{
		Count: s.count.Load(), Last: time.Duration(s.last.Load()),
		Max: time.Duration(s.max.Load()), Total: time.Duration(s.total.Load()),
	}
}
