package fabric

import (
	"sync/atomic"
	"time"
)

// WithModel returns p with the network m: each completion is held until the network would
// have delivered it.
//
//	start = max(time of Submit, time at which this host's port is free)
//	due   = start + bytes on the wire + round trip
//
// The port belongs to the provider; its queue pairs share the bandwidth. Reads and the
// peer's immediates occupy one direction, writes the other. Only the initiator's side is
// modelled. There an immediate is held for a whole round trip from when it is first seen,
// because the request that it answers arrived at once. On accepted queue pairs an immediate
// takes only its time on the wire.
//
// Bytes move when p moves them. Code that reads memory instead of polling sees them before
// the network would have delivered them.
//
// Poll returns at once if nothing is due. Wait suspends its thread, except for the last
// three microseconds.
func WithModel(p Provider, m Model) Provider {
	if m == (Model{}) {
		return p
	}
	n := &modelled{model: m, epoch: time.Now()}
	return &wrapper{Provider: p, wrap: func(q QueuePair, depth int, dialled bool) QueuePair {
		answer := time.Duration(0)
		if dialled {
			answer = m.RTT
		}
		return newModelledPair(n, q, depth, answer)
	}}
}

// modelled is the network of one provider.
type modelled struct {
	model Model
	epoch time.Time // the times below are nanoseconds since epoch
	rx    port      // incoming bytes of reads
	tx    port      // outgoing bytes of writes
}

// port is one direction of a host's link. It holds the time from which the link is free.
type port struct{ free atomic.Int64 }

// reserve occupies the port for d, from now or from when it is free, and returns the start.
// One call serves a whole batch.
func (p *port) reserve(now, d int64) int64 {
	for {
		free := p.free.Load()
		start := max(now, free)
		if p.free.CompareAndSwap(free, start+d) {
			return start
		}
	}
}

func (p *modelled) now() int64 { return int64(time.Since(p.epoch)) }
