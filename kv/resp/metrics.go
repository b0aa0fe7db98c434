package resp

import (
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/metrics"
)

// Metrics describes what a server has done since it was made, and what it holds.
type Metrics struct {
	// Clients that are connected.
	Clients int
	// Connections that were accepted. Of these, Rejected were refused, since there were too
	// many or in protected mode; Idle were ended after Options.IdleTimeout; Slow were ended
	// since the client did not read its replies.
	Connections, Rejected, Idle, Slow uint64
	// Commands that were carried out or refused.
	Commands uint64
	// BytesIn were received from clients, BytesOut sent to them.
	BytesIn, BytesOut uint64
	// RequestBytes are held of incomplete commands, ReplyBytes of unsent replies, both beyond a
	// small buffer for each connection.
	RequestBytes, ReplyBytes int64
	// Latency of batches, each of all commands that one read of a connection completed: from
	// the read until the replies are ready.
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

// statShards are written to by different connections, so that they do not wait
// for each other's cache lines.
const statShards = 4

// stats are what a server knows of its commands.
type stats struct {
	errors       atomic.Int64 // replies that are one
	errorKinds   errorKinds
	hits, misses atomic.Int64 // keys that reads found, or did not
	deniedLogins atomic.Int64

	shards [statShards][]commandStats // by the commands' numbers
}

type commandStats struct {
	took    atomic.Int64 // nanoseconds, of all together
	classes [metrics.LatencyClasses]atomic.Int64
}

func (s *stats) init(commands int) {
	for i := range s.shards {
		s.shards[i] = make([]commandStats, commands)
	}
}

// add counts calls of a command that took so long each.
func (s *stats) add(client int64, command int, calls int64, took time.Duration) {
	of := &s.shards[client%statShards][command]
	of.took.Add(calls * int64(took))
	of.classes[metrics.LatencyClass(took)].Add(calls)
}

func (s *stats) reset() {
	s.deniedLogins.Store(0)
	s.errors.Store(0)
	s.errorKinds.reset()
	s.hits.Store(0)
	s.misses.Store(0)
	for i := range s.shards {
		for j := range s.shards[i] {
			of := &s.shards[i][j]
			of.took.Store(0)
			for k := range of.classes {
				of.classes[k].Store(0)
			}
		}
	}
}

// errorKinds are how many replies were errors of each kind, by their first word.
type errorKinds struct {
	mu     sync.Mutex
	counts map[string]int64 // there are as many kinds as the server has
}

// addError counts a reply that is an error.
func (s *stats) addError(text string) {
	s.errors.Add(1)
	kind, _, _ := strings.Cut(text, " ")
	k := &s.errorKinds
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.counts == nil {
		k.counts = make(map[string]int64)
	}
	k.counts[kind]++
}

func (k *errorKinds) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counts = nil
}

// CommandMetrics is what a server has done for one command. A command's latency
// is from when its batch of pipelined commands was read to when the replies of
// the batch were ready.
type CommandMetrics struct {
	Name  string
	Calls int64
	Took  time.Duration // of all calls together
	// Latencies are the calls by their latency.
	Latencies []LatencyClass
}

// LatencyClass is how many calls took less than that, and not less than the class
// before.
type LatencyClass struct {
	Below time.Duration
	Calls int64
}

// Quantile is the latency that a share q of the calls stayed below, 0 to 1.
func (m *CommandMetrics) Quantile(q float64) time.Duration {
	rest := int64(q * float64(m.Calls))
	for _, l := range m.Latencies {
		if rest -= l.Calls; rest <= 0 {
			return l.Below
		}
	}
	return 0
}

// Commands says what the server has done for each command that was called since the
// server was made, or since CONFIG RESETSTAT.
func (s *Server) Commands() (all []CommandMetrics) {
	for n, cmd := range s.table.all {
		if of := s.stats.command(n, cmd.name); of.Calls > 0 {
			all = append(all, of)
		}
	}
	return all
}

// command adds up what the shards have of a command.
func (s *stats) command(n int, name string) CommandMetrics {
	m := CommandMetrics{Name: name}
	for i := range s.shards {
		m.Took += time.Duration(s.shards[i][n].took.Load())
	}
	for class := range metrics.LatencyClasses {
		calls := int64(0)
		for i := range s.shards {
			calls += s.shards[i][n].classes[class].Load()
		}
		if calls > 0 {
			m.Calls += calls
			m.Latencies = append(m.Latencies, LatencyClass{metrics.LatencyClassEnd(class), calls})
		}
	}
	return m
}

// ran is how often a connection has called each command in the present batch.
type ran struct {
	calls    []uint32 // by the command's number; nil before the first one
	commands []uint16 // those that are not 0
}

// note stores n at a place where it is mostly.
func note(at *atomic.Int64, n int) {
	if at.Load() != int64(n) {
		at.Store(int64(n))
	}
}

// count counts a command of the batch.
func (c *client) count(cmd *command) {
	if c.ran.calls == nil {
		c.ran.calls = make([]uint32, len(c.server.table.all))
	}
	if c.ran.calls[cmd.n]++; c.ran.calls[cmd.n] == 1 {
		c.ran.commands = append(c.ran.commands, uint16(cmd.n))
	}
}

// noteBatch puts the batch that has just been carried out into the statistics.
func (c *client) noteBatch() {
	if c.last.Load() != c.present { // looking costs less than storing
		c.last.Store(c.present)
	}
	note(&c.unread, c.in.end-c.in.start)
	note(&c.inputs, len(c.in.buf))
	note(&c.outputs, cap(c.out))
	if len(c.ran.commands) == 0 {
		return
	}
	took := time.Since(c.began)
	c.server.counts.latencies.add(took)
	all := int64(0)
	for _, n := range c.ran.commands {
		calls := int64(c.ran.calls[n])
		all += calls
		c.server.stats.add(c.id, int(n), calls, took)
		c.ran.calls[n] = 0
	}
	c.ran.commands = c.ran.commands[:0]
	c.active.Store(c.began.UnixMilli())
	c.server.counts.commands.Add(uint64(all))
	if s := &c.server.slow; s.isSlow(took) {
		if r, ok := c.in.again(c.firstAt); ok {
			s.note(c, r, all-1, took)
		}
	}
	if c.hits != 0 || c.misses != 0 {
		c.server.stats.hits.Add(c.hits)
		c.server.stats.misses.Add(c.misses)
		c.hits, c.misses = 0, 0
	}
}
