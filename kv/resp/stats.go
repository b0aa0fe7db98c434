package resp

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/latency"
)

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
	classes [latency.Classes]atomic.Int64
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
	of.classes[latency.ClassOf(took)].Add(calls)
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
	for class := range latency.Classes {
		calls := int64(0)
		for i := range s.shards {
			calls += s.shards[i][n].classes[class].Load()
		}
		if calls > 0 {
			m.Calls += calls
			m.Latencies = append(m.Latencies, LatencyClass{latency.End(class), calls})
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
