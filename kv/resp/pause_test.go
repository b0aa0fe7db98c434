package resp

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// TestPause: commands wait until the pause ends, with all connections, and in their order.
func TestPause(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, s *Server, connect func() *peer) {
		admin, p := connect(), connect()
		if got := admin.do("CLIENT", "PAUSE", "1000000", "WRITE"); got != "+OK" {
			t.Fatal(got)
		}
		p.send(encode("GET", "a") + encode("SET", "a", "1") + encode("GET", "a") + encode("MULTI") + encode("INCR", "a") + encode("EXEC"))
		p.expects("nil")
		if got := admin.do("GET", "a"); got != "nil" {
			t.Error(got)
		}
		if got := admin.do("CLIENT", "UNPAUSE"); got != "+OK" {
			t.Fatal(got)
		}
		p.expects("+OK", `"1"`, "+OK", "+QUEUED", "[:2]")
		admin.do("CLIENT", "PAUSE", "1000000")
		admin.do("CLIENT", "PAUSE", "1", "WRITE") // neither shortens nor weakens it
		p.send(encode("GET", "a"))
		admin.do("CLIENT", "UNPAUSE")
		p.expects(`"2"`)
		admin.do("CLIENT", "PAUSE", "20")
		p.send(encode("GET", "a"))
		p.expects(`"2"`)                                                               // the time has come
		testrun.Until(t, "the pause ends", func() bool { return !s.paused.on.Load() }) // it may have ended before the command came
		admin.do("CLIENT", "PAUSE", "1000000")
		p.send(encode("GET", "a")) // waits while the server is closed
	})
}

// TestExpiryAfterPause: the time that a pause takes is not taken from an expiry.
func TestExpiryAfterPause(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, _ *Server, connect func() *peer) {
		const ttl = 1_000_000
		admin, p := connect(), connect()
		admin.do("CLIENT", "PAUSE", "1000000", "WRITE")
		p.send(encode("GET", "a") + encode("SET", "a", "1", "PX", strconv.Itoa(ttl)) + encode("PEXPIRETIME", "a"))
		p.expects("nil")
		sent := time.Now()
		testrun.Until(t, "time has passed", func() bool { return time.Since(sent) > 20*time.Millisecond })
		ends := time.Now().UnixMilli() + ttl
		admin.do("CLIENT", "UNPAUSE")
		p.expects("+OK")
		if got, err := strconv.ParseInt(strings.TrimPrefix(p.reply(), ":"), 10, 64); err != nil || got < ends {
			t.Errorf("the key expires %d ms too early, %v", ends-got, err)
		}
	})
}

// TestExpiryAfterLocks: nor is the time in which a transaction waits for its keys, or a script for the store.
func TestExpiryAfterLocks(t *testing.T) {
	const ttl = 1_000_000
	for _, command := range []string{
		encode("MULTI") + encode("SET", "k", "v", "PX", strconv.Itoa(ttl)) + encode("EXEC"),
		encode("EVAL", "redis.call('SET', 'k', 'v', 'PX', "+strconv.Itoa(ttl)+")", "0"),
	} {
		s, addr := start(t, inMemory(), Options{Loops: -1})
		p := dial(t, addr)
		var ends int64
		if err := s.store.Atomically(t.Context(), [][]byte{[]byte("k")}, func(*kv.Session) error {
			w := s.pool.borrow()
			p.send(command)
			testrun.Until(t, "the command waits", func() bool {
				s.pool.mu.Lock()
				defer s.pool.mu.Unlock()
				return s.pool.lent == 2 || s.pool.seized
			})
			sent := time.Now()
			testrun.Until(t, "time has passed", func() bool { return time.Since(sent) > 20*time.Millisecond })
			ends = time.Now().UnixMilli() + ttl
			return s.pool.giveBack(w)
		}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(command, "EXEC") {
			p.expects("+OK", "+QUEUED", "[+OK]")
		} else {
			p.expects("nil")
		}
		if got, err := strconv.ParseInt(strings.TrimPrefix(p.do("PEXPIRETIME", "k"), ":"), 10, 64); err != nil || got < ends {
			t.Errorf("%s: the key expires %d ms too early, %v", command, ends-got, err)
		}
	}
}

// TestExpiryAfterSlowReplies: nor is the time in which a client does not read its replies.
func TestExpiryAfterSlowReplies(t *testing.T) {
	const ttl, large, many = 1_000_000, 1 << 20, 64
	_, addr := start(t, inMemory(), Options{Loops: -1})
	p := dial(t, addr)
	p.do("SET", "large", strings.Repeat("v", large))
	p.send(strings.Repeat(encode("GET", "large"), many) + encode("SET", "a", "1", "PX", strconv.Itoa(ttl)) + encode("PEXPIRETIME", "a"))
	sent := time.Now()
	testrun.Until(t, "time has passed", func() bool { return time.Since(sent) > 20*time.Millisecond })
	ends := time.Now().UnixMilli() + ttl
	for range many {
		if got := p.reply(); len(got) < large {
			t.Fatal(got)
		}
	}
	p.expects("+OK")
	if got, err := strconv.ParseInt(strings.TrimPrefix(p.reply(), ":"), 10, 64); err != nil || got < ends {
		t.Errorf("the key expires %d ms too early, %v", ends-got, err)
	}
}

// TestPauseWithoutReplies: a command waits whose reply is dropped, and replies before it are not.
func TestPauseWithoutReplies(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, _ *Server, connect func() *peer) {
		admin, p := connect(), connect()
		for _, mode := range []string{"SKIP", "OFF"} {
			admin.do("CLIENT", "PAUSE", "100", "WRITE")
			p.send(encode("PING", "first") + encode("CLIENT", "REPLY", mode) + encode("SET", "a", "1") + encode("CLIENT", "REPLY", "ON") + encode("PING", "last"))
			p.expects(`"first"`, "+OK", `"last"`)
		}
	})
}

func TestPauseAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	began := time.Now()
	for _, command := range []string{
		"CLIENT PAUSE x", "CLIENT PAUSE -1", "CLIENT PAUSE 1 nonsense", "CLIENT PAUSE 1 ALL x", "CLIENT UNPAUSE", "CLIENT PAUSE 0", "CLIENT PAUSE 1 write", "CLIENT UNPAUSE x",
		"CLIENT PAUSE 9223372036854775807", "CLIENT UNPAUSE", "OBJECT FREQ none", "OBJECT IDLETIME none", "SET k v", "OBJECT FREQ k", "OBJECT IDLETIME k", "COMMAND INFO client|pause", "COMMAND INFO client|unpause",
		"COMMAND INFO object|freq", "COMMAND INFO object|idletime",
	} {
		want, got := redis.do(strings.Fields(command)...), ours.do(strings.Fields(command)...)
		if command == "OBJECT IDLETIME k" { // seconds pass between the commands on a busy machine
			for _, reply := range []string{got, want} {
				if n, err := strconv.Atoi(strings.TrimPrefix(reply, ":")); err != nil || n < 0 || float64(n) > time.Since(began).Seconds()+1 {
					t.Errorf("%s: %s", command, reply)
				}
			}
			continue
		}
		if want = strings.ReplaceAll(want, " +nondeterministic_output", ""); got != want && !strings.HasPrefix(want, "[[") {
			t.Errorf("%s\n  got %s\nRedis %s", command, got, want)
		}
	}
}
