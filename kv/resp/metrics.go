package resp

import (
	"cmp"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/metrics"
)

// Metrics describes a server since it was made.
type Metrics struct {
	// Clients is the number of connected clients.
	Clients int
	// Connections is the number of accepted connections. Of these, Rejected were refused
	// because of MaxClients or protected mode, Idle ended after Options.IdleTimeout, and Slow
	// ended because the client did not read its replies.
	Connections, Rejected, Idle, Slow uint64
	// Commands is the number of commands that ran or were refused.
	Commands uint64
	// BytesIn and BytesOut are the bytes received from and sent to clients.
	BytesIn, BytesOut uint64
	// Channels, Patterns and ShardChannels are the numbers of names that have subscribers.
	Channels, Patterns, ShardChannels int
	// Published is the number of messages, keyspace notifications included. Delivered counts each
	// once for each subscriber, and tracked keys that have changed once for each client that was told.
	Published, Delivered uint64
	// Tracking is the number of clients with CLIENT TRACKING, TrackedKeys that of the keys that they
	// have read.
	Tracking, TrackedKeys int
	// RequestBytes and ReplyBytes are the memory of incomplete commands and unsent replies,
	// beyond a small buffer for each connection.
	RequestBytes, ReplyBytes int64
	// Latency has the latencies of batches, from the read that completed a batch's commands
	// until its replies are sent.
	Latency Latency
}

// latencyBuckets is the number of latency classes. They cover 2^(latencyBuckets-1) µs, some 34
// s.
const latencyBuckets = 26

// Latency counts durations. Counts[i] counts those from half of 2^i up to 2^i microseconds;
// the last one also counts longer ones.
type Latency struct {
	Counts [latencyBuckets]uint64
	Sum    time.Duration
}

// Bound returns the upper bound of the durations in Counts[i].
func (l *Latency) Bound(i int) time.Duration { return time.Microsecond << i }

// latencies is a Latency for concurrent use.
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

// counts are the numbers of Metrics that connections update.
type counts struct {
	connections, rejected, idle, slow atomic.Uint64
	commands, in, out                 atomic.Uint64
	latencies                         latencies
}

// Durable returns nil while writes are as durable as Options.Durability promises, or else the
// error of the last commit. With every promise it returns an error while the store cannot be
// written, as when its device is full.
func (s *Server) Durable() error {
	if s.loading.on.Load() {
		return nil
	}
	return cmp.Or(s.committer.state(), s.store.WriteError())
}

// Metrics returns the server's metrics.
func (s *Server) Metrics() Metrics {
	s.mu.Lock()
	clients := len(s.clients)
	s.mu.Unlock()
	c, p := &s.counts, s.pubsub.numbers()
	tracking, tracked, _, _ := s.tracking.stats()
	return Metrics{
		Channels: p.names[channels], Patterns: p.names[patterns], ShardChannels: p.names[shardChannels],
		Published: p.published, Delivered: p.delivered,
		Tracking: tracking, TrackedKeys: tracked,
		Clients:     clients,
		Connections: c.connections.Load(), Rejected: c.rejected.Load(), Idle: c.idle.Load(), Slow: c.slow.Load(),
		Commands: c.commands.Load(),
		BytesIn:  c.in.Load(), BytesOut: c.out.Load(),
		RequestBytes: s.large.used.Load(), ReplyBytes: s.replies.used.Load(),
		Latency: c.latencies.load(),
	}
}

// statShards is the number of copies of the statistics. Different connections update different
// copies, so that they rarely share cache lines.
const statShards = 4

// stats are statistics of commands.
type stats struct {
	errors       atomic.Int64 // error replies
	errorKinds   errorKinds
	hits, misses atomic.Int64 // reads that found a key, or did not
	deniedLogins atomic.Int64

	shards [statShards][]commandStats // by the commands' numbers
}

type commandStats struct {
	refused atomic.Int64
	took    atomic.Int64 // nanoseconds of all calls together
	classes [metrics.LatencyClasses]atomic.Int64
}

func (s *stats) init(commands int) {
	for i := range s.shards {
		s.shards[i] = make([]commandStats, commands)
	}
}

// add counts calls of a command. Each took the given time.
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
			of.refused.Store(0)
			of.took.Store(0)
			for k := range of.classes {
				of.classes[k].Store(0)
			}
		}
	}
}

// errorKinds counts error replies by their first word, which scripts choose, too.
type errorKinds struct {
	mu     sync.Mutex       // guards counts
	counts map[string]int64 // of at most mostErrorKinds words, and ERR
}

// Other errors than of so many kinds, and words that are longer, are counted as ERR, as in Redis.
const (
	mostErrorKinds = 128
	longestKind    = 32
	otherErrors    = "ERR"
)

// refuse counts a call of a command that is refused.
func (s *stats) refuse(client int64, command int) {
	s.shards[client%statShards][command].refused.Add(1)
}

// addError counts an error reply.
func (s *stats) addError(text string) {
	s.errors.Add(1)
	kind, _, _ := strings.Cut(text[:min(len(text), longestKind+1)], " ")
	if len(kind) > longestKind {
		kind = otherErrors
	}
	k := &s.errorKinds
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.counts == nil {
		k.counts = make(map[string]int64)
	}
	if _, known := k.counts[kind]; !known && len(k.counts) >= mostErrorKinds {
		kind = otherErrors
	}
	if n, known := k.counts[kind]; known {
		k.counts[kind] = n + 1
	} else {
		k.counts[strings.Clone(kind)] = 1 // not the rest of the text
	}
}

func (k *errorKinds) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counts = nil
}

// CommandMetrics are the statistics of one command. The latency of a call is the time from the
// read of its batch of pipelined commands until the replies of the batch are sent, with the commit that
// they wait for.
type CommandMetrics struct {
	Name    string
	Calls   int64
	Refused int64         // calls that did not run, for their arguments, permissions or the server's state
	Took    time.Duration // of all calls together
	// Latencies counts the calls by latency.
	Latencies []LatencyClass
}

// LatencyClass counts the calls that took less than Below, and not less than the class before.
type LatencyClass struct {
	Below time.Duration
	Calls int64
}

// Quantile returns the latency below which a share q of the calls lies, from 0 to 1.
func (m *CommandMetrics) Quantile(q float64) time.Duration {
	rest := int64(q * float64(m.Calls))
	for _, l := range m.Latencies {
		if rest -= l.Calls; rest <= 0 {
			return l.Below
		}
	}
	return 0
}

// Commands returns the statistics of each command that was called, or refused, since the server was made,
// or since CONFIG RESETSTAT.
func (s *Server) Commands() (all []CommandMetrics) {
	for n, cmd := range s.table.all {
		if of := s.stats.command(n, cmd.name); of.Calls > 0 || of.Refused > 0 {
			all = append(all, of)
		}
	}
	return all
}

// command returns the sum of all shards for a command.
func (s *stats) command(n int, name string) CommandMetrics {
	m := CommandMetrics{Name: name}
	for i := range s.shards {
		m.Took += time.Duration(s.shards[i][n].took.Load())
		m.Refused += s.shards[i][n].refused.Load()
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

// ran counts the calls of each command in a connection's current batch.
type ran struct {
	calls    []uint32 // by the command's number; nil before the first one
	commands []uint16 // numbers of the commands in calls that are not 0
	solo     []soloRun
	ended    time.Time // when the batch had run
}

// soloRun is a command that is timed by itself.
type soloRun struct {
	command uint16
	took    time.Duration // without the time until its reply is sent
}

// note stores n unless at holds it already, which is the usual case.
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

// noteRun adds the batch that has just run to the statistics, except for its latencies.
func (c *client) noteRun() {
	if c.last.Load() != c.present { // a load costs less than a store
		c.last.Store(c.present)
	}
	note(&c.unread, c.in.end-c.in.start)
	note(&c.inputs, len(c.in.buf))
	note(&c.outputs, cap(c.out))
	c.active.Store(c.began.UnixMilli())
	if len(c.ran.commands) == 0 && len(c.ran.solo) == 0 {
		return
	}
	c.ran.ended = time.Now()
	all := int64(0)
	for _, n := range c.ran.commands {
		all += int64(c.ran.calls[n])
	}
	c.server.counts.commands.Add(uint64(all) + uint64(len(c.ran.solo)))
	if took, s := c.ran.ended.Sub(c.began), &c.server.slow; all > 0 && s.isSlow(took) {
		if r, ok := c.in.again(); ok {
			s.note(c, r, all-1, took)
		}
	}
	if c.hits != 0 || c.misses != 0 {
		c.server.stats.hits.Add(c.hits)
		c.server.stats.misses.Add(c.misses)
		c.hits, c.misses = 0, 0
	}
}

// noteSent adds the latencies of the batch to the statistics. Its replies have been sent, or cannot be.
func (c *client) noteSent() {
	if len(c.ran.commands) == 0 && len(c.ran.solo) == 0 {
		return
	}
	now := time.Now()
	if len(c.ran.commands) > 0 {
		took := now.Sub(c.began)
		c.server.counts.latencies.add(took)
		for _, n := range c.ran.commands {
			c.server.stats.add(c.id, int(n), int64(c.ran.calls[n]), took)
			c.ran.calls[n] = 0
		}
		c.ran.commands = c.ran.commands[:0]
	}
	for _, solo := range c.ran.solo {
		c.server.stats.add(c.id, int(solo.command), 1, solo.took+now.Sub(c.ran.ended))
	}
	if c.ran.solo = c.ran.solo[:0]; cap(c.ran.solo) > plainArgs { // a transaction had many
		c.ran.solo = nil
	}
}
