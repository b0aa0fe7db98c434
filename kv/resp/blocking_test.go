package resp

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// waitForBlocked waits until so many clients of a server wait.
func waitForBlocked(t *testing.T, s *Server, n int64) {
	t.Helper()
	testrun.UntilNil(t, func() error {
		if now := s.blocking.waiting.Load(); now != n {
			return fmt.Errorf("%d clients wait, want %d", now, n)
		}
		return nil
	})
}

// left returns the number of entries about clients that wait.
func (b *blocking) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues) + len(b.clients)
}

// waitingAt returns the id of the first client that waits for a record's key.
func (b *blocking) waitingAt(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strconv.FormatInt(b.queues[key][0].client.id, 10)
}

// timedOut is a timeout that ends in a test.
const timedOut = " 0.05"

// blocked sends commands of several clients, each of which waits before the next one is sent. A wait
// with a timeout may end before it is seen.
func blocked(t *testing.T, s *Server, addr string, commands ...string) (peers []*peer) {
	t.Helper()
	for i, command := range commands {
		p := dial(t, addr)
		p.send(encode(strings.Fields(command)...))
		if strings.HasSuffix(command, timedOut) {
			testrun.Until(t, "the client is connected", func() bool { return s.Metrics().Clients == i+2 })
		} else {
			waitForBlocked(t, s, int64(i+1))
		}
		peers = append(peers, p)
	}
	return peers
}

// TestBlockedClientsAreServed: clients that wait are served in their order, by whatever adds an
// element, and before the client that adds it runs its next command.
func TestBlockedClientsAreServed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		waits   []string
		command string // commands of another client, in one pipeline
		replies string // theirs
		served  []string
	}{
		{"in order", []string{"BLPOP a 0", "BRPOP a 0", "BLPOP a 0"}, "RPUSH a 1 2 3 4|LRANGE a 0 -1", `:4 ["3"]`, []string{`["a" "1"]`, `["a" "4"]`, `["a" "2"]`}},
		{"one at a time", []string{"BLPOP a 0", "BLPOP a 0"}, "LPUSH a 1|EXISTS a|LPUSH a 2|EXISTS a", `:1 :0 :1 :0`, []string{`["a" "1"]`, `["a" "2"]`}},
		{"several keys", []string{"BLPOP a b c 0"}, "RPUSH b 1 2|LLEN b", `:2 :1`, []string{`["b" "1"]`}},
		{"a key twice", []string{"BLPOP a a 0"}, "RPUSH a 1 2|LLEN a", `:2 :1`, []string{`["a" "1"]`}},
		{"another type", []string{"BLPOP a 0", "BZPOPMIN a 0"}, "SET a 1|DEL a|ZADD a 1 m 2 n|ZCARD a|DEL a|RPUSH a 1", `+OK :1 :2 :1 :1 :1`, []string{`["a" "1"]`, `["a" "m" "1"]`}},
		{"a transaction", []string{"BLPOP a 0"}, "MULTI|RPUSH a 1|RPUSH a 2|LLEN a|EXEC|LLEN a", `+OK +QUEUED +QUEUED +QUEUED [:1 :2 :2] :1`, []string{`["a" "1"]`}},
		{"a transaction that deletes", []string{"BLPOP a 0"}, "MULTI|RPUSH a 1|DEL a|EXEC|RPUSH a 2", `+OK +QUEUED +QUEUED [:1 :1] :1`, []string{`["a" "2"]`}},
		{"rename", []string{"BLPOP a 0"}, "RPUSH b 1 2|RENAME b a|LLEN a", `:2 +OK :1`, []string{`["a" "1"]`}},
		{"copy", []string{"BLPOP a 0"}, "RPUSH b 1 2|COPY b a|LLEN a", `:2 :1 :1`, []string{`["a" "1"]`}},
		{"move", []string{"BLMOVE a b LEFT RIGHT 0"}, "RPUSH a 1 2|LRANGE a 0 -1|LRANGE b 0 -1", `:2 ["2"] ["1"]`, []string{`"1"`}},
		{"a chain", []string{"BRPOPLPUSH a b 0", "BRPOPLPUSH b c 0", "BLPOP c 0"}, "RPUSH a 1|EXISTS a b c", `:1 :0`, []string{`"1"`, `"1"`, `["c" "1"]`}},
		{"a circle", []string{"BLMOVE a b LEFT RIGHT 0", "BLMOVE b a LEFT RIGHT 0"}, "RPUSH a 1|LRANGE a 0 -1|EXISTS b", `:1 ["1"] :0`, []string{`"1"`, `"1"`}},
		{"itself", []string{"BLMOVE a a LEFT RIGHT 0"}, "RPUSH a 1 2|LRANGE a 0 -1", `:2 ["2" "1"]`, []string{`"1"`}},
		{"to another type", []string{"BLMOVE a s LEFT RIGHT 0", "BLPOP a 0"}, "SET s 1|RPUSH a 1", `+OK :1`, []string{"-" + errWrongType, `["a" "1"]`}},
		{"several elements", []string{"BLMPOP 0 2 a b RIGHT COUNT 2"}, "RPUSH b 1 2 3|LRANGE b 0 -1", `:3 ["1"]`, []string{`["b" ["3" "2"]]`}},
		{"several members", []string{"BZMPOP 0 2 a b MAX COUNT 2", "BZPOPMAX b 0"}, "ZADD b 1 m 2 n 3 o 4 p|ZRANGE b 0 -1", `:4 ["m"]`, []string{`["b" [["p" "4"] ["o" "3"]]]`, `["b" "n" "2"]`}},
		{"stores", []string{"BZPOPMIN a 0", "BZPOPMIN b 0"}, "ZADD c 1 m 2 n|ZUNIONSTORE a 1 c|ZRANGESTORE b c 0 -1|ZCARD a|ZCARD b", `:2 :2 :2 :1 :1`, []string{`["a" "m" "1"]`, `["b" "m" "1"]`}},
		{"restore", []string{"BLPOP a 0"}, "RESTORE a 0 PAYLOAD|LLEN a", `+OK :1`, []string{`["a" "1"]`}},
		{"a large list", []string{"BLPOP a 0"}, "RPUSH b " + strings.Repeat("element ", 2000) + "|RENAME b a|LLEN a", `:2000 +OK :1999`, []string{`["a" "element"]`}},
		{"unblocked", []string{"BLPOP a 0"}, "CLIENT UNBLOCK ID|CLIENT UNBLOCK ID|RPUSH a 1", `:1 :0 :1`, []string{`nil[]`}},
		{"unblocked with an error", []string{"BLMOVE a b LEFT LEFT 0"}, "CLIENT UNBLOCK ID ERROR", `:1`, []string{"-" + errUnblocked}},
		{"timeouts", []string{"BLPOP a" + timedOut}, "PING", `+PONG`, []string{`nil[]`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for store, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
				s, addr := start(t, options(), Options{})
				p := dial(t, addr)
				peers := blocked(t, s, addr, tc.waits...)
				id := strconv.FormatInt(s.all()[1].id, 10)
				commands := strings.Split(tc.command, "|")
				pipeline := ""
				for _, command := range commands {
					args := strings.Fields(command)
					for i, arg := range args {
						switch arg {
						case "ID":
							args[i] = id
						case "PAYLOAD":
							args[i] = sealDump("\x01\x02\x011\x012", dumpVersion)
						}
					}
					pipeline += encode(args...)
				}
				p.send(pipeline)
				var replies []string
				for range commands {
					replies = append(replies, p.reply())
				}
				if got := strings.Join(replies, " "); got != tc.replies {
					t.Errorf("%s: the replies are %s, want %s", store, got, tc.replies)
				}
				for i, q := range peers {
					if got := q.reply(); got != tc.served[i] {
						t.Errorf("%s: the reply to %s is %s, want %s", store, tc.waits[i], got, tc.served[i])
					}
					if got := q.do("PING"); got != "+PONG" {
						t.Error(got)
					}
				}
				waitForBlocked(t, s, 0)
				testrun.Until(t, "no entries are left", func() bool { return s.blocking.left() == 0 })
			}
		})
	}
}

// TestBlockedClientsGo: a client that goes away while it waits takes no element and leaves nothing.
func TestBlockedClientsGo(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	peers := blocked(t, s, addr, "BLPOP a 0", "BLPOP a b 0", "BZPOPMIN z 0", "BLPOP a 0")
	if err := peers[0].conn.Close(); err != nil {
		t.Fatal(err)
	}
	waitForBlocked(t, s, 3)
	if got := p.do("CLIENT", "KILL", "ID", s.blocking.waitingAt("z")); got != ":1" {
		t.Error(got)
	}
	waitForBlocked(t, s, 2)
	peers[2].expectEnd()
	if got := p.do("RPUSH", "a", "1", "2", "3"); got != ":3" {
		t.Error(got)
	}
	for i, want := range map[int]string{1: `["a" "1"]`, 3: `["a" "2"]`} {
		if got := peers[i].reply(); got != want {
			t.Errorf("client %d got %s, want %s", i, got, want)
		}
	}
	if got := p.do("LRANGE", "a", "0", "-1"); got != `["3"]` {
		t.Error(got)
	}
	testrun.Until(t, "no entries are left", func() bool { return s.blocking.left() == 0 })
}

// TestBlockedClientsWithMore: what a client sends while it waits runs afterwards; messages arrive
// meanwhile; CLIENT REPLY is obeyed; a transaction does not wait; a shutdown ends the wait.
func TestBlockedClientsWithMore(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p, q := dial(t, addr), dial(t, addr)
	q.send(encode("HELLO", "3") + encode("SUBSCRIBE", "news"))
	q.reply()
	q.expects(`push["subscribe" "news" :1]`)
	q.send(encode("BLPOP", "a", "0") + encode("SET", "b", strings.Repeat("v", 100_000)) + encode("STRLEN", "b"))
	waitForBlocked(t, s, 1)
	if got := p.do("PUBLISH", "news", "m"); got != ":1" {
		t.Error(got)
	}
	q.expects(`push["message" "news" "m"]`)
	if got := p.do("EXISTS", "b"); got != ":0" {
		t.Error(got)
	}
	if got := p.do("INFO", "clients"); !strings.Contains(got, "blocked_clients:1") {
		t.Error(got)
	}
	if got := p.do("CLIENT", "LIST"); !strings.Contains(got, "flags=P") && !strings.Contains(got, "flags=b") {
		t.Error(got)
	}
	p.do("RPUSH", "a", "1")
	q.expects(`["a" "1"]`, "+OK", ":100000")
	q.send(encode("CLIENT", "REPLY", "SKIP") + encode("BLPOP", "a", "0") + encode("PING"))
	waitForBlocked(t, s, 1)
	p.do("RPUSH", "a", "2")
	q.expects("+PONG")
	q.send(encode("MULTI") + encode("BLPOP", "a", "0") + encode("BLMOVE", "a", "b", "LEFT", "LEFT", "0") + encode("EXEC"))
	q.expects("+OK", "+QUEUED", "+QUEUED", "[null null]")
	q.send(encode("BLPOP", "a", "0"))
	waitForBlocked(t, s, 1) // the end of the test shuts the server down
}

// TestBlockedClientsInCrowd: many clients that wait and many that push lose no element and get none
// twice.
func TestBlockedClientsInCrowd(t *testing.T) {
	const clients, each = 8, 200
	_, addr := start(t, inMemory(), Options{})
	got := make(chan string, clients*each)
	failed := make(chan error, 2*clients)
	for i := range clients {
		push, pop := dial(t, addr), dial(t, addr)
		go func() {
			for n := range each {
				push.send(encode("RPUSH", "queue", strconv.Itoa(i*each+n)))
				if _, err := readReply(push.in); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
		go func() {
			for range each {
				pop.send(encode("BLPOP", "queue", "0"))
				reply, err := readReply(pop.in)
				if err != nil {
					failed <- err
					return
				}
				got <- reply
			}
			failed <- nil
		}()
	}
	for range 2 * clients {
		if err := testrun.Receive(t, "a client ends", failed); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for range clients * each {
		seen[testrun.Receive(t, "the next reply", got)] = true
	}
	if len(seen) != clients*each {
		t.Errorf("%d elements, want %d", len(seen), clients*each)
	}
}

// TestWaiterThatDoesNotRead: a client that waits, and does not read its messages, is disconnected.
func TestWaiterThatDoesNotRead(t *testing.T) {
	s, addr := start(t, inMemory(), Options{WriteTimeout: 50 * time.Millisecond})
	waiter, writer := dial(t, addr), dial(t, addr)
	waiter.do("HELLO", "3")
	waiter.do("CLIENT", "TRACKING", "ON", "BCAST")
	waiter.send(encode("BLPOP", "none", "0"))
	waitForBlocked(t, s, 1)
	writer.do("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0")
	long := strings.Repeat("k", 60<<10)
	for n := range 400 { // more than the sockets hold
		writer.do("SET", fmt.Sprint(long, n), "v")
	}
	waitForBlocked(t, s, 0)
}
