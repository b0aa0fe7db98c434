package resp

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// only returns the server's only client.
func only(t *testing.T, s *Server) *client {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.clients) != 1 {
		t.Fatalf("%d clients", len(s.clients))
	}
	for c := range s.clients {
		return c
	}
	return nil
}

// TestConnectionsMoveBetweenLoopsAndGoroutines: a connection belongs to a loop while its
// commands are plain, leaves it for other commands, and returns. Its state moves with it.
func TestConnectionsMoveBetweenLoopsAndGoroutines(t *testing.T) {
	s, addr := start(t, inMemory(), Options{Loops: 1, MaxBulk: 1 << 20})
	p := dial(t, addr)
	if got := p.do("CLIENT", "SETNAME", "me"); got != "+OK" {
		t.Fatal(got)
	}
	c := only(t, s)
	inLoop := func() bool { return c.looped.Owned() == nil }
	for what, leave := range map[string]func(){
		"a transaction": func() {
			for _, tc := range [][2]string{{"MULTI", "+OK"}, {"SET a 1", "+QUEUED"}, {"EXEC", "[+OK]"}} {
				if got := p.do(strings.Fields(tc[0])...); got != tc[1] {
					t.Errorf("%s: %s", tc[0], got)
				}
			}
		},
		"many keys": func() {
			if got := p.do(append([]string{"DEL"}, make([]string, plainArgs)...)...); got != ":0" {
				t.Error(got)
			}
		},
		"very many random elements": func() {
			if got := p.do("SRANDMEMBER", "none", "-100000"); got != "[]" || inLoop() {
				t.Errorf("%s; by a loop: %t", got, inLoop())
			}
		},
		"very many different random elements": func() {
			if got := p.do("ZRANDMEMBER", "none", "100000", "WITHSCORES"); got != "[]" || inLoop() {
				t.Errorf("%s; by a loop: %t", got, inLoop())
			}
		},
		"commands on the server between others": func() {
			p.send(encode("SET", "a", "1") + "  PING\r\n" + encode("DBSIZE") + `INFO "clients"` + "\r\n" + encode("GET", "a"))
			for _, want := range []string{"+OK", "+PONG", ":1", `"# Clients`, `"1"`} {
				if got := p.reply(); !strings.HasPrefix(got, want) {
					t.Errorf("%s, want %s", got, want)
				}
			}
		},
		"replies that are not taken": func() {
			if got := p.do("SET", "large", strings.Repeat("v", 1<<19)); got != "+OK" {
				t.Error(got)
			}
			p.send(strings.Repeat(encode("STRLEN", "large")+encode("GET", "large"), 20))
			for range 20 {
				if got := p.reply(); got != ":524288" {
					t.Error(got)
				}
				if got := p.reply(); len(got) != 1<<19+2 {
					t.Errorf("%d bytes", len(got))
				}
			}
			if got := p.do("DEL", "large"); got != ":1" {
				t.Error(got)
			}
		},
	} {
		testrun.Until(t, "before "+what+", a loop has the connection", func() bool {
			if got := p.do("PING"); got != "+PONG" {
				t.Fatal(got)
			}
			return inLoop()
		})
		leave()
		if got := p.do("CLIENT", "GETNAME"); got != `"me"` {
			t.Errorf("after %s: %s", what, got)
		}
	}
	if got := p.do("MULTI"); got != "+OK" || inLoop() {
		t.Errorf("%s; a loop has a transaction: %t", got, inLoop())
	}
}

// TestColdStoreHasNoLoops: a store that reads its device serves clients with goroutines, and with loops
// again when it reads it no more.
func TestColdStoreHasNoLoops(t *testing.T) {
	s, addr := start(t, cold(), Options{Loops: 1, releaseAfter: 10 * time.Millisecond})
	p := dial(t, addr)
	value := strings.Repeat("v", 1000)
	for n := range 2000 {
		if got := p.do("SET", fmt.Sprint(n), value); got != "+OK" {
			t.Fatal(got)
		}
	}
	c := only(t, s)
	n := 0
	testrun.Until(t, "the connection has a goroutine", func() bool {
		for range 100 {
			n = (n + 7) % 2000
			if got := p.do("STRLEN", fmt.Sprint(n)); got != ":1000" {
				t.Fatal(got)
			}
		}
		return s.cold.Load() && c.looped.Owned() != nil
	})
	testrun.Until(t, "a loop has the connection", func() bool {
		if got := p.do("PING"); got != "+PONG" {
			t.Fatal(got)
		}
		return !s.cold.Load() && c.looped.Owned() == nil
	})
}

// TestManyConnectionsMove: connections that move between loops and goroutines see their own
// writes, while others move and are killed.
func TestManyConnectionsMove(t *testing.T) {
	s, addr := start(t, inMemory(), Options{Loops: 2})
	var all sync.WaitGroup
	for i := range 16 {
		p := dial(t, addr)
		all.Go(func() {
			for n := range 400 {
				key, value := fmt.Sprintf("k%d", i), fmt.Sprint(n)
				request := encode("SET", key, value) + encode("GET", key)
				if n%97 == 0 {
					request = encode("MULTI") + request + encode("EXEC")
				}
				if _, err := p.conn.Write([]byte(request)); err != nil {
					t.Error(err)
					return
				}
				replies := []string{"+OK", `"` + value + `"`}
				if n%97 == 0 {
					replies = []string{"+OK", "+QUEUED", "+QUEUED", `[+OK "` + value + `"]`}
				}
				for _, want := range replies {
					if got, err := readReply(p.in); got != want {
						t.Errorf("%s, %v, want %s", got, err, want)
						return
					}
				}
			}
		})
	}
	killer := dial(t, addr)
	for range 50 {
		victim := dial(t, addr)
		id := strings.TrimPrefix(victim.do("CLIENT", "ID"), ":")
		if got := killer.do("CLIENT", "KILL", "ID", id); got != ":1" {
			t.Error(got)
		}
		victim.expectEnd()
	}
	all.Wait()
	testrun.Until(t, "the killed ones are gone", func() bool { return s.Metrics().Clients == 17 })
}

// TestLoopsAfterLargeValue: once there was a large value, a loop gives away commands that may read many like it,
// and keeps others.
func TestLoopsAfterLargeValue(t *testing.T) {
	s, addr := start(t, inMemory(), Options{Loops: 1})
	p := dial(t, addr)
	p.do("PING") // so that the server knows the client
	c := only(t, s)
	inLoop := func() bool { return c.looped.Owned() == nil }
	back := func() {
		t.Helper()
		testrun.Until(t, "the connection is in a loop", func() bool {
			p.do("PING")
			return inLoop()
		})
	}
	back()
	if got := p.do("MGET", "a", "b", "c"); got != "[nil nil nil]" || !inLoop() {
		t.Errorf("MGET of small values: %s, in a loop: %t", got, inLoop())
	}
	if got := p.do("SET", "large", strings.Repeat("v", batchBytes/8)); got != "+OK" {
		t.Fatal(got)
	}
	back()
	for _, command := range []string{"SET a v", "SET a v EX 100", "GET a", "EXPIRE a 100", "MGET a", "MGET a b c", "MSET a 1 b 2 c 3 d 4 e 5", "DEL a b c d e f"} {
		if p.do(strings.Fields(command)...); !inLoop() {
			t.Errorf("%s left the loop", command)
			back()
		}
	}
	if got := p.do("MGET", "a", "b", "c", "d", "e", "f", "g", "h", "i"); got != "[nil nil nil nil nil nil nil nil nil]" || inLoop() {
		t.Errorf("MGET of values that may be large: %s, in a loop: %t", got, inLoop())
	}
	back()
}
