package proxy

import "sync/atomic"

// Metrics are the counters and the state of a proxy.
type Metrics struct {
	Caches                    int
	Capacity                  int64  // bytes of all caches
	Requests                  int    // being served
	Errors                    uint64 // requests that were answered with an error
	PiecesRead, PiecesWritten uint64 // accesses to caches of up to 256 KiB
	BytesRead, BytesWritten   uint64
	BuffersUsed               int // of 256 KiB
}

type counters struct {
	errors, piecesRead, piecesWritten, bytesRead, bytesWritten atomic.Uint64
}

func (c *counters) reads(length int64) {
	c.piecesRead.Add(1)
	c.bytesRead.Add(uint64(length))
}

func (c *counters) writes(length int64) {
	c.piecesWritten.Add(1)
	c.bytesWritten.Add(uint64(length))
}

// Metrics returns the proxy's metrics.
func (p *Proxy) Metrics() Metrics {
	m := Metrics{
		Requests: len(p.running), Errors: p.counts.errors.Load(),
		PiecesRead: p.counts.piecesRead.Load(), PiecesWritten: p.counts.piecesWritten.Load(),
		BytesRead: p.counts.bytesRead.Load(), BytesWritten: p.counts.bytesWritten.Load(),
		BuffersUsed: cap(p.pieces.free) - len(p.pieces.free),
	}
	for _, c := range p.list() {
		m.Caches++
		m.Capacity += c.redy.Capacity()
	}
	return m
}
