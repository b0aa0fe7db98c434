package resp

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// TestLatenciesIncludeTheCommit: the latency of a write ends when its reply is sent, which waits for a
// commit. In loops and in goroutines.
func TestLatenciesIncludeTheCommit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		loops    int
		commands []string
	}{{"loop", 1, []string{"SET a 2"}}, {"goroutine", -1, []string{"SET a 2", "FLUSHALL"}}} {
		t.Run(tc.name, func(t *testing.T) {
			dev := &standing{Device: device.NewMemory(), waits: make(chan struct{}, 1)}
			s, addr := start(t, kv.Options{Device: dev, Memory: 64 << 20, Records: 1 << 10}, Options{Durability: DurabilityAlways, Loops: tc.loops})
			p := dial(t, addr)
			p.do("PING")
			gate := make(chan struct{})
			dev.gate.Store(&gate)
			for _, command := range tc.commands {
				p.send(encode(strings.Fields(command)...))
			}
			testrun.Receive(t, "the device waits", dev.waits)
			called := func() int { return len(s.Commands()) - 1 } // without PING
			if n := called(); n > 0 {
				t.Errorf("the latencies of %d commands count before the commit", n)
			}
			dev.gate.Store(nil)
			close(gate)
			for range tc.commands {
				if got := p.reply(); got != "+OK" {
					t.Error(got)
				}
			}
			testrun.Until(t, "the latencies count", func() bool { return called() == len(tc.commands) })
		})
	}
}

// TestRefusedCommandsCount: commands that do not run are counted, as with Redis.
func TestRefusedCommandsCount(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	before := s.Metrics().Commands
	for _, command := range []string{"SET k", "NOSUCH", "GET"} {
		if got := p.do(strings.Fields(command)...); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("%s: %s", command, got)
		}
	}
	if got := p.do("INFO", "commandstats"); !strings.Contains(got, "cmdstat_set:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1") ||
		!strings.Contains(got, "cmdstat_get:calls=0,") || strings.Contains(got, "nosuch") {
		t.Error(got)
	}
	if n := s.Metrics().Commands - before; n < 3 {
		t.Errorf("%d commands", n)
	}
	if got := p.do("LATENCY", "HISTOGRAM", "set"); got != "[]" {
		t.Error(got)
	}
}

// TestSlowlogOfALine: the slow log has the words of a command that was typed as a line.
func TestSlowlogOfALine(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	if got := p.do("CONFIG", "SET", "slowlog-log-slower-than", "0"); got != "+OK" {
		t.Fatal(got)
	}
	for line, want := range map[string]string{
		`SET "a\x41b" "v w"`:      `["SET" "aAb" "v w"]`,
		`SET 'it\'s' ""`:          `["SET" "it's" ""]`,
		`ECHO "a b"` + "\r\nPING": `["ECHO" "a b" "... (1 more commands)"]`,
	} {
		p.send(line + "\r\n")
		p.reply()
		if strings.Contains(line, "PING") {
			p.reply()
		}
		if got := p.do("SLOWLOG", "GET", "1"); !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestScansAreNoIdleness: a client that only scans is not idle.
func TestScansAreNoIdleness(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	p.do("PING")
	c := only(t, s)
	c.active.Store(1)
	p.do("SCAN", "0")
	p.do("SCAN", "0") // the batch before has ended
	if c.active.Load() == 1 {
		t.Error("SCAN does not count as activity")
	}
}

// TestTransactionOfScansTakesItsTime: a command that is timed by itself, within a transaction that is, too,
// does not make the latencies of the batch negative.
func TestTransactionOfScansTakesItsTime(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	for i := range 2000 {
		p.send(encode("SET", strconv.Itoa(i), "v"))
	}
	for range 2000 {
		p.reply()
	}
	const scans = 100
	p.send(encode("MULTI") + strings.Repeat(encode("KEYS", "none"), scans) + encode("EXEC") + encode("PING"))
	for range scans + 3 {
		p.reply()
	}
	p.do("PING") // the batch before has ended
	for _, m := range s.Commands() {
		if m.Took < 0 {
			t.Errorf("%d calls of %s took %v", m.Calls, m.Name, m.Took)
		}
	}
}
