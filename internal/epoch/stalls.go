package epoch

import (
	"sync/atomic"
	"time"
)

// Stalls say how often, and how long, an Exclusive kept sessions from entering.
type Stalls struct {
	Count            uint64
	Last, Max, Total time.Duration
}

// stalls are written by Exclusive, one at a time, and read by anybody.
type stalls struct {
	count            atomic.Uint64
	last, max, total atomic.Int64
}

// add counts one that began then.
func (s *stalls) add(since time.Time) {
	d := int64(time.Since(since))
	s.last.Store(d)
	s.max.Store(max(s.max.Load(), d))
	s.total.Add(d)
	s.count.Add(1)
}

// Stalls says how long sessions were kept waiting since the table was made.
func (t *Table) Stalls() Stalls {
	s := &t.stalls
	return Stalls{
		Count: s.count.Load(), Last: time.Duration(s.last.Load()),
		Max: time.Duration(s.max.Load()), Total: time.Duration(s.total.Load()),
	}
}
