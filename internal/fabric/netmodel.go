package fabric

import (
	"sync/atomic"
	"time"
)

// WithModel returns p with the network m: each completion is held until the network would
// have delivered it.
//
//	launch = max(time of Submit, time at which the adapter is free, launch of the queue
//	         pair's operation before; of a read also: due of the read m.Reads before it)
//	start  = max(launch, time at which this host's port is free)
//	due    = start + bytes on the wire + round trip
//
// The adapter and the port belong to the provider; its queue pairs share the messages a second
// and the bandwidth. A message occupies the adapter for 1/m.Messages of a second, sent or
// received. A read above m.Reads waits at the adapter, and so do the operations behind it.
// The port's time is reserved at Submit also for an operation that waits: other queue pairs
// do not wait behind it, and no more than the bandwidth is ever used. Reads and the
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
	return WithLive(p, NewLive(m))
}

// Live is a model that may change while it is used. It is safe for concurrent use.
type Live struct{ model atomic.Pointer[Model] }

// NewLive returns a Live with that model.
func NewLive(m Model) *Live {
	l := new(Live)
	l.Set(m)
	return l
}

// Set changes the model, for operations that are submitted later. The bound of outstanding reads
// stays that of each queue pair's beginning.
func (l *Live) Set(m Model) { l.model.Store(&m) }

// WithLive is WithModel for a model that may change.
func WithLive(p Provider, l *Live) Provider {
	n := &modelled{live: l, epoch: time.Now()}
	return &wrapper{Provider: p, wrap: func(q QueuePair, depth int, dialled bool) QueuePair {
		return newModelledPair(n, q, depth, dialled)
	}}
}

// modelled is the network of one provider.
type modelled struct {
	live  *Live
	epoch time.Time // the times below are nanoseconds since epoch
	rx    port      // incoming bytes of reads
	tx    port      // outgoing bytes of writes
	card  port      // messages in the adapter, of both directions
}

// port is one direction of a host's link, or its adapter. It holds the time from which that
// is free.
type port struct{ free atomic.Int64 }

// reserve occupies the port for d, from now or from when it is free, and returns the start.
// One call serves a whole batch.
func (p *port) reserve(now, d int64) int64 {
	if d == 0 { // unbounded, or nothing in this direction
		return max(now, p.free.Load())
	}
	for {
		free := p.free.Load()
		start := max(now, free)
		if p.free.CompareAndSwap(free, start+d) {
			return start
		}
	}
}

func (p *modelled) model() *Model { return p.live.model.Load() }

func (p *modelled) now() int64 { return int64(time.Since(p.epoch)) }
