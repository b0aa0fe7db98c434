package resp

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Metrics is what a server has done since it was made, and what it holds.
type Metrics struct {
	// Clients that are connected.
	Clients int
	// Connections that were accepted, and of them those turned away: too many, or
	// from elsewhere in protected mode; those ended because they had been idle for too
	// long, and because they had not taken their replies.
	Connections, Rejected, Idle, Slow uint64
	// Commands that were carried out or refused.
	Commands uint64
	// BytesIn were received from clients, BytesOut sent to them.
	BytesIn, BytesOut uint64
	// RequestBytes are held of commands that have not arrived whole, ReplyBytes of
	// replies that have not been taken, both beyond a small buffer for each
	// connection.
	RequestBytes, ReplyBytes int64
	// Latency of batches, of all commands that a connection had sent when it was looked
	// at: from their arrival to the moment when their replies are sent.
	Latency Latency
}

// latencyBuckets bound latencies of up to 2^(latencyBuckets-1) µs, some 34 s.
const latencyBuckets = 26

// Latency counts durations. Counts[i] are those below 2^i microseconds and not below
// half of that; the last one also counts what is longer.
type Latency struct {
	Counts [latencyBuckets]uint64
	Sum    time.Duration
}

// Bound is what the durations in Counts[i] are less than.
func (l *Latency) Bound(i int) time.Duration { return time.Microsecond << i }

// Count is how many there are.
func (l *Latency) Count() (n uint64) {
	for _, c := range l.Counts {
		n += c
	}
	return n
}

// latencies is a Latency that is added to while it is read.
type latencies struct {
	counts [latencyBuckets]atomic.Uint64
	sum    atomic.Int64
}

func (l *latencies) add(d time.Duration) {
	i := bits.Len64(uint64(max(d, 0) / time.Microsecond))
	l.counts[min(i, latencyBuckets-1)].Add(1)
	l.sum.Add(int64(d))
}

func (l *latencies) load() (sum Latency) {
	for i := range l.counts {
		sum.Counts[i] = l.counts[i].Load()
	}
	sum.Sum = time.Duration(l.sum.Load())
	return sum
}

// counts are those of a server's Metrics that connections add to.
type counts struct {
	connections, rejected, idle, slow atomic.Uint64
	commands, in, out                 atomic.Uint64
	latencies                         latencies
}

// Durable says why what was written lately is not as durable as Options.Durability
// promises; nil: it is.
func (s *Server) Durable() error { return s.committer.state() }

// Metrics says what the server has done and what it holds.
func (s *Server) Metrics() Metrics {
	s.mu.Lock()
	clients := len(s.clients)
	s.mu.Unlock()
	c := &s.counts
	return Metrics{
		Clients:     clients,
		Connections: c.connections.Load(), Rejected: c.rejected.Load(), Idle: c.idle.Load(), Slow: c.slow.Load(),
		Commands: c.commands.Load(),
		BytesIn:  c.in.Load(), BytesOut: c.out.Load(),
		RequestBytes: s.large.used.Load(), ReplyBytes: s.replies.used.Load(),
		Latency: c.latencies.load(),
	}
}
