package fabric

import (
	"context"
	"sync/atomic"
	"time"
)

// WithModel wraps p in the network m: each completion is held until the network
// would have delivered it.
//
//	start = max(time of Submit, time at which this host's port is free)
//	due   = start + bytes on the wire + round trip
//
// The port is the provider's: its queue pairs share the bandwidth, reads the one
// way and writes the other, and the peer's immediates the way of reads. Only the
// initiator's side is modelled, so an immediate there is held a whole round trip
// from when it is first seen: it answers what this side sent, which was on the
// other side at once. On accepted queue pairs it takes its time on the wire alone.
//
// Bytes move when p moves them, completions when the network would. Whoever
// looks at memory instead of polling sees them early.
//
// Held completions cost nothing: Poll with nothing due returns at once, and Wait
// suspends its thread, but for the last three microseconds.
func WithModel(p Provider, m Model) Provider {
	if m == (Model{}) {
		return p
	}
	return &modelled{Provider: p, model: m, epoch: time.Now()}
}

type modelled struct {
	Provider
	model Model
	epoch time.Time // times below are nanoseconds since
	rx    port      // what reads come in by
	tx    port      // what writes go out by
}

// port is one direction of a host's link: the time at which it is free.
type port struct{ free atomic.Int64 }

// reserve takes the port for d from now on, or from when it is free, and returns
// the start. One call for a whole batch.
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

func (p *modelled) Listen(addr string, depth int) (Listener, error) {
	l, err := p.Provider.Listen(addr, depth)
	if err != nil {
		return nil, err
	}
	return &modelledListener{Listener: l, provider: p, depth: depth}, nil
}

func (p *modelled) Dial(ctx context.Context, addr string, private []byte, depth int) (QueuePair, error) {
	q, err := p.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	return newModelledPair(p, q, depth, p.model.RTT), nil
}

type modelledListener struct {
	Listener
	provider *modelled
	depth    int
}

func (l *modelledListener) Accept(ctx context.Context) (Request, error) {
	r, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &modelledRequest{Request: r, listener: l}, nil
}

type modelledRequest struct {
	Request
	listener *modelledListener
}

func (r *modelledRequest) Accept(private []byte) (QueuePair, error) {
	q, err := r.Request.Accept(private)
	if err != nil {
		return nil, err
	}
	return newModelledPair(r.listener.provider, q, r.listener.depth, 0), nil
}
