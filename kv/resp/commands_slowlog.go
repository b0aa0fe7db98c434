package resp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of the slow log, and the most entries that it may be configured to have.
const (
	slowerThan  = 10_000 // microseconds
	slowEntries = 128
	maxSlowlog  = 10_000
)

// Limits of an entry.
const (
	slowArgs  = 32  // arguments of a command
	slowBytes = 128 // bytes of an argument
)

// slowlog is a server's log of slow commands. The time of a batch is measured as a whole: its
// entry has the batch's first command and the number of the others.
type slowlog struct {
	slower atomic.Int64 // least microseconds that are logged; negative: nothing is logged
	most   atomic.Int64 // most entries

	mu      sync.Mutex // guards the fields below
	entries []slowEntry
	next    int64 // id of the next entry
}

type slowEntry struct {
	id   int64
	at   time.Time
	took time.Duration
	args [][]byte
	addr string
	name string
}

func (l *slowlog) init() {
	l.slower.Store(slowerThan)
	l.most.Store(slowEntries)
}

func (l *slowlog) isSlow(took time.Duration) bool {
	slower := l.slower.Load()
	return slower >= 0 && took.Microseconds() >= slower
}

// note logs a slow command that ran in a batch with others other commands.
func (l *slowlog) note(c *client, r request, others int64, took time.Duration) {
	if !l.isSlow(took) || l.most.Load() == 0 {
		return
	}
	e := slowEntry{at: time.Now(), took: took, args: slowArgsOf(r), addr: c.conn.RemoteAddr().String(), name: c.info.Load().name}
	if others > 0 {
		e.args = append(e.args, fmt.Appendf(nil, "... (%d more commands)", others))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.trim()
}

// trim drops the oldest entries if there are too many.
func (l *slowlog) trim() {
	if n := len(l.entries) - int(l.most.Load()); n > 0 {
		l.entries = slices.Delete(l.entries, 0, n)
	}
}

func (l *slowlog) resize(most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most.Store(most)
	l.trim()
}

// slowArgsOf returns copies of a command's arguments, shortened and without passwords.
func slowArgsOf(r request) (args [][]byte) {
	if is(r.arg(0), "auth") || is(r.arg(0), "hello") || is(r.arg(0), "config") || is(r.arg(0), "acl") {
		return [][]byte{bytes.Clone(r.arg(0)), []byte("(redacted)")}
	}
	for i := range r.len() {
		if i == slowArgs-1 && r.len() > slowArgs {
			return append(args, fmt.Appendf(nil, "... (%d more arguments)", r.len()-i))
		}
		arg := r.arg(i)
		kept := bytes.Clone(arg[:min(len(arg), slowBytes)])
		if rest := len(arg) - len(kept); rest > 0 {
			kept = fmt.Appendf(kept, "... (%d more bytes)", rest)
		}
		args = append(args, kept)
	}
	return args
}

// newest returns up to n entries, newest first, or all if n is negative.
func (l *slowlog) newest(n int64) (entries []slowEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.entries) - 1; i >= 0 && (n < 0 || int64(len(entries)) < n); i-- {
		entries = append(entries, l.entries[i])
	}
	return entries
}

func slowlogGet(c *client, r request) {
	n := int64(10)
	if r.len() > 3 {
		c.fail(subcommandSyntax(r))
		return
	}
	if r.len() == 3 {
		var ok bool
		if n, ok = parseInt(r.arg(2)); !ok || n < -1 {
			c.fail("ERR count should be greater than or equal to -1")
			return
		}
	}
	out := c.reply()
	entries := c.server.slow.newest(n)
	out = appendArray(out, len(entries))
	for _, e := range entries {
		out = appendArray(out, 6)
		out = appendInt(out, e.id)
		out = appendInt(out, e.at.Unix())
		out = appendInt(out, e.took.Microseconds())
		out = appendArray(out, len(e.args))
		for _, arg := range e.args {
			out = appendBulk(out, arg)
		}
		out = appendBulk(out, e.addr)
		out = appendBulk(out, e.name)
	}
	c.out = out
}

func slowlogLen(c *client, _ request) {
	out := c.reply()
	c.out = appendInt(out, int64(len(c.server.slow.newest(-1))))
}

func slowlogReset(c *client, _ request) {
	l := &c.server.slow
	l.mu.Lock()
	l.entries = nil
	l.mu.Unlock()
	c.out = appendSimple(c.reply(), "OK")
}

// latencyHistogram implements LATENCY HISTOGRAM. For each command, it replies with the number
// of calls that took up to each bound in microseconds. The name of a command with subcommands
// selects all of them.
func latencyHistogram(c *client, r request) {
	out := c.reply()
	var all []CommandMetrics
	for _, m := range c.server.Commands() {
		if m.Calls == 0 {
			continue
		}
		asked := r.len() == 2
		for i := 2; i < r.len(); i++ {
			container, _, _ := strings.Cut(m.Name, "|")
			asked = asked || is(r.arg(i), m.Name) || is(r.arg(i), container)
		}
		if asked {
			all = append(all, m)
		}
	}
	out = appendMap(out, c.resp3, len(all))
	for i := range all {
		m := &all[i]
		out = appendBulk(out, m.Name)
		out = appendMap(out, c.resp3, 2)
		out = appendInt(appendBulk(out, "calls"), m.Calls)
		octaves := m.octaves()
		out = appendMap(appendBulk(out, "histogram_usec"), c.resp3, len(octaves))
		for _, l := range octaves {
			out = appendInt(appendInt(out, int64((l.Below+time.Microsecond-1)/time.Microsecond)), l.Calls)
		}
	}
	c.out = out
}

// octaves merges the latency classes into classes whose bounds are powers of two microseconds.
// Its counts are cumulative.
func (m *CommandMetrics) octaves() (all []LatencyClass) {
	bound, below := time.Microsecond, int64(0)
	for i, l := range m.Latencies {
		for bound < l.Below {
			bound *= 2
		}
		below += l.Calls
		if i+1 == len(m.Latencies) || m.Latencies[i+1].Below > bound {
			all = append(all, LatencyClass{bound, below})
		}
	}
	return all
}

// latencyNone implements LATENCY LATEST and LATENCY HISTORY: as with Redis's default of
// latency-monitor-threshold, no spikes are kept.
func latencyNone(c *client, _ request) { c.out = appendArray(c.reply(), 0) }

func latencyReset(c *client, _ request) { c.out = appendInt(c.reply(), 0) }
