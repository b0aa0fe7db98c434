package redytier

import (
	"sync/atomic"
	"time"
)

// publication measures how long a table takes to reach the sessions. It is safe for concurrent
// use.
type publication struct {
	at    time.Time
	delay atomic.Int64 // nanoseconds until the last session so far had the table
}

// reached is called by a session that used an earlier table and has updated itself.
func (p *publication) reached() {
	n := int64(time.Since(p.at))
	for before := p.delay.Load(); n > before && !p.delay.CompareAndSwap(before, n); {
		before = p.delay.Load()
	}
}
