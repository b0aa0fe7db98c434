package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// TestSettingsAllOrNone: a CONFIG SET that fails changes no setting, and loses nothing that a setting limits.
func TestSettingsAllOrNone(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	p.last("+OK", "CONFIG SET slowlog-log-slower-than 0 tracking-table-max-keys 100 busy-reply-threshold 700")
	p.do("PING")
	p.last("+OK", "CONFIG SET slowlog-log-slower-than -1")
	entries := p.do("SLOWLOG", "LEN")
	for _, command := range []string{
		"slowlog-max-len 0 acllog-max-len x",
		"slowlog-max-len 0 busy-reply-threshold x",
		"busy-reply-threshold 1 tracking-table-max-keys 1 client-output-buffer-limit nonsense",
		"busy-reply-threshold 1 lua-time-limit 2",
	} {
		if got := p.do(strings.Fields("CONFIG SET " + command)...); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("CONFIG SET %s: %s", command, got)
		}
		for name, want := range map[string]string{
			"busy-reply-threshold": "700", "lua-time-limit": "700", "tracking-table-max-keys": "100",
			"slowlog-max-len": "128", "acllog-max-len": "128",
		} {
			if got := p.do("CONFIG", "GET", name); got != fmt.Sprintf("[%q %q]", name, want) {
				t.Errorf("after CONFIG SET %s: %s, want %s", command, got, want)
			}
		}
		if got := p.do("SLOWLOG", "LEN"); got != entries || got == ":0" {
			t.Errorf("after CONFIG SET %s the slow log has %s entries, want %s", command, got, entries)
		}
	}
}

// TestErrorKindsAreLimited: the kinds of errors that scripts make up take little memory.
func TestErrorKindsAreLimited(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	const many = 3 * mostErrorKinds
	for i := range many {
		p.do("EVAL", "error({err = ARGV[1]})", "0", fmt.Sprintf("KIND%d failed", i))
	}
	p.do("EVAL", "error({err = ARGV[1]})", "0", strings.Repeat("x", 1<<20))
	k := &s.stats.errorKinds
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.counts) > mostErrorKinds+1 {
		t.Errorf("%d kinds are kept", len(k.counts))
	}
	all := int64(0)
	for kind, n := range k.counts {
		if len(kind) > longestKind {
			t.Errorf("a kind of %d bytes is kept", len(kind))
		}
		all += n
	}
	if all != many+1 || k.counts["KIND7"] != 1 || k.counts[otherErrors] < many-mostErrorKinds {
		t.Errorf("%d errors were counted, %d of kind ERR", all, k.counts[otherErrors])
	}
}

// TestWaiterBesideABusyScript: a client that waits for a key is not forgotten when it could not be served,
// because a script has locked another one of its keys for long.
func TestWaiterBesideABusyScript(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p, runner := dial(t, addr), dial(t, addr)
	waiter := blocked(t, s, addr, "BLMOVE a b LEFT RIGHT 0")[0]
	p.last("+OK", "CONFIG SET busy-reply-threshold 1")
	runner.send(encode("EVAL", endless, "1", "b"))
	testrun.Until(t, "the script is busy", func() bool { _, n := s.scripts.killable(); return n > 0 })
	p.last(":1", "RPUSH a 1")
	if got := waiter.reply(); got != "-"+errBusy {
		t.Errorf("the client that waits gets %s", got)
	}
	p.last("+OK", "SCRIPT KILL")
	runner.reply()
	if got := waiter.do("BLMOVE", "a", "b", "LEFT", "RIGHT", "0"); got != `"1"` {
		t.Errorf("afterwards it gets %s", got)
	}
}

// TestRepliesThatAreTooLarge: a command whose reply would be larger than Options.MaxReplies is refused, before
// it takes that memory, and changes nothing.
func TestRepliesThatAreTooLarge(t *testing.T) {
	testrun.SkipRaced(t, "one client with a hundred megabytes, which the detector copies word by word")
	_, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	const parts = 2000
	part := strings.Repeat("v", 2*leastReplies/parts)
	for i := range parts {
		member := fmt.Sprint(i, part)
		p.do("RPUSH", "l", member)
		p.do("ZADD", "z", "1", member)
		p.do("SADD", "s", member)
		p.do("SADD", "s", fmt.Sprint(i))
		p.do("SET", fmt.Sprint("k", i), part)
		p.do("RPUSH", "numbers", fmt.Sprint(i))
	}
	p.do("HSET", "h", "f", part[:3000])
	p.do("HSET", "g", "f", part)
	fields := func(key string, n int) []string {
		args := []string{"HMGET", key}
		for range n {
			args = append(args, "f")
		}
		return args
	}
	for _, command := range [][]string{
		{"LPOP", "l", "1000000000"}, {"RPOP", "l", "1500"}, {"LMPOP", "1", "l", "LEFT", "COUNT", "2000"},
		{"ZPOPMIN", "z", "1000000000"}, {"ZPOPMAX", "z", "1500"}, {"ZMPOP", "1", "z", "MIN", "COUNT", "2000"}, {"ZSCAN", "z", "0", "COUNT", "2000"},
		{"SPOP", "s", "3999"}, {"SPOP", "s", "4000"},
		fields("h", 10_000), fields("g", parts), {"ZUNION", "2", "z", "s"}, {"ZINTER", "1", "s"}, {"ZDIFF", "1", "z"},
		{"SORT", "numbers", "GET", "k*"},
		append([]string{"SORT", "numbers", "LIMIT", "0", "1"}, strings.Fields(strings.Repeat(" GET k*", parts))...),
	} {
		if got := p.do(command...); got != "-"+errMemory {
			t.Errorf("%.60v: %.60s", command, got)
		}
		if got := p.do("LLEN", "l") + p.do("ZCARD", "z") + p.do("SCARD", "s"); got != ":2000:2000:4000" {
			t.Fatalf("%.60v has changed something: %s", command, got)
		}
	}
	for _, command := range []string{"LPOP l 3", "ZPOPMIN z 3", "SPOP s 3", "HMGET g f f"} {
		if got := p.do(strings.Fields(command)...); got[0] != '[' {
			t.Errorf("%s: %.60s", command, got)
		}
	}
	for _, command := range []string{"ZUNIONSTORE to 1 s", "ZINTERCARD 1 s"} { // their replies are small
		if got, want := p.do(strings.Fields(command)...), p.do("SCARD", "s"); got != want {
			t.Errorf("%s: %.60s, want %s", command, got, want)
		}
	}
}
