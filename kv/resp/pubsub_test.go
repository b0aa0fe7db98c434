package resp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// expects checks the next replies and messages of a connection.
func (p *peer) expects(want ...string) {
	p.t.Helper()
	for _, w := range want {
		if got := p.reply(); got != w {
			p.t.Errorf("%s, want %s", got, w)
		}
	}
}

// hears checks that nothing has been sent to a connection.
func (p *peer) hears(token string) {
	p.t.Helper()
	p.send(encode("PING", token))
	if got := p.reply(); got != strconv.Quote(token) && got != `["pong" `+strconv.Quote(token)+`]` {
		p.t.Errorf("%s, want nothing before %s", got, token)
	}
}

// pubsubVariants serve connections in loops, by goroutines, and over TLS.
func pubsubVariants(t *testing.T, test func(t *testing.T, s *Server, connect func() *peer)) {
	for name, loops := range map[string]int{"loops": 2, "goroutines": -1} {
		t.Run(name, func(t *testing.T) {
			s, addr := start(t, inMemory(), Options{Loops: loops})
			test(t, s, func() *peer { return dial(t, addr) })
		})
	}
	t.Run("tls", func(t *testing.T) {
		server, client := certificate(t)
		ln := listen(t)
		s := startOn(t, tls.NewListener(ln, server), Options{})
		test(t, s, func() *peer {
			conn, err := tls.Dial("tcp", ln.Addr().String(), client)
			if err != nil {
				t.Fatal(err)
			}
			return dialed(t, conn)
		})
	})
}

// TestPublish: messages arrive in the form of the subscriber's protocol, whatever owns the
// connections.
func TestPublish(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, s *Server, connect func() *peer) {
		two, three, shard, publisher := connect(), connect(), connect(), connect()
		three.do("HELLO", "3")
		two.send(encode("SUBSCRIBE", "a", "b"))
		two.expects(`["subscribe" "a" :1]`, `["subscribe" "b" :2]`)
		two.send(encode("PSUBSCRIBE", "a*"))
		two.expects(`["psubscribe" "a*" :3]`)
		three.send(encode("PSUBSCRIBE", "?"))
		three.expects(`push["psubscribe" "?" :1]`)
		shard.send(encode("SSUBSCRIBE", "a"))
		shard.expects(`["ssubscribe" "a" :1]`)

		for range 3 {
			if got := publisher.do("PUBLISH", "a", "m") + publisher.do("PUBLISH", "c", "") + publisher.do("SPUBLISH", "a", "s") + publisher.do("PUBLISH", "none", "m"); got != ":3:1:1:0" {
				t.Errorf("%s subscribers", got)
			}
			got := []string{two.reply(), two.reply()} // in any order
			slices.Sort(got)
			if want := []string{`["message" "a" "m"]`, `["pmessage" "a*" "a" "m"]`}; !slices.Equal(got, want) {
				t.Errorf("%s, want %s", got, want)
			}
			three.expects(`push["pmessage" "?" "a" "m"]`, `push["pmessage" "?" "c" ""]`)
			shard.expects(`["smessage" "a" "s"]`)
		}
		large := strings.Repeat("l", 3<<20)
		if got := publisher.do("PUBLISH", "b", large); got != ":2" {
			t.Error(got)
		}
		two.expects(`["message" "b" "` + large + `"]`)
		three.expects(`push["pmessage" "?" "b" "` + large + `"]`)

		two.send(encode("UNSUBSCRIBE", "a") + encode("PUNSUBSCRIBE"))
		two.expects(`["unsubscribe" "a" :2]`, `["punsubscribe" "a*" :1]`)
		if got := publisher.do("PUBLISH", "a", "m"); got != ":1" {
			t.Errorf("%s subscribers", got)
		}
		two.hears("nothing of a")
		if got := two.do("RESET") + publisher.do("PUBLISH", "b", "m"); got != "+RESET:1" {
			t.Error(got)
		}
		two.hears("nothing after RESET")
		for _, p := range []*peer{two, three, shard} {
			_ = p.conn.Close()
		}
		testrun.Until(t, "connections that end have no subscriptions", func() bool {
			return publisher.do("PUBSUB", "NUMPAT")+publisher.do("PUBSUB", "SHARDCHANNELS") == ":0[]"
		})
		if n := s.Metrics().ReplyBytes; n != 0 {
			t.Errorf("%d bytes of messages are left", n)
		}
	})
}

// TestMessagesAreOrdered: subscribers receive the messages of each publisher in order, and all
// subscribers receive all messages in the same order, also while their connections move.
func TestMessagesAreOrdered(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, s *Server, connect func() *peer) {
		const publishers, listeners, each = 3, 6, 400
		heard := make([][]string, listeners)
		var all sync.WaitGroup
		for i := range listeners {
			p := connect()
			p.do("HELLO", "3")
			if got := p.do("SUBSCRIBE", "a"); got != `push["subscribe" "a" :1]` {
				t.Fatal(got)
			}
			all.Go(func() {
				for len(heard[i]) < publishers*each {
					got, err := readReply(p.in)
					switch {
					case err != nil:
						t.Error(err)
						return
					case strings.HasPrefix(got, "push"):
						heard[i] = append(heard[i], got)
					case !strings.HasPrefix(got, ":"):
						t.Error(got)
					}
					if len(heard[i])%50 == i { // moves the connection to a goroutine
						if _, err := io.WriteString(p.conn, encode("DBSIZE")); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		for i := range publishers {
			p := connect()
			all.Go(func() {
				for n := 0; n < each; n += 10 {
					var pipeline strings.Builder
					for k := range 10 {
						pipeline.WriteString(encode("PUBLISH", "a", fmt.Sprintf("%d:%03d", i, n+k)))
					}
					if _, err := io.WriteString(p.conn, pipeline.String()); err != nil {
						t.Error(err)
						return
					}
					for range 10 {
						if got, err := readReply(p.in); got != fmt.Sprint(":", listeners) {
							t.Errorf("%s, %v", got, err)
							return
						}
					}
				}
			})
		}
		all.Wait()
		for i := range heard {
			if !slices.Equal(heard[i], heard[0]) {
				t.Errorf("subscriber %d received another order than subscriber 0", i)
			}
		}
		for i := range publishers {
			own := slices.DeleteFunc(slices.Clone(heard[0]), func(m string) bool { return !strings.Contains(m, fmt.Sprintf(`"%d:`, i)) })
			if len(own) != each || !slices.IsSorted(own) {
				t.Errorf("%d messages of publisher %d, sorted: %t", len(own), i, slices.IsSorted(own))
			}
		}
	})
}

// TestNoMessageAfterUnsubscribe: messages that are published while a batch runs precede the
// confirmation of UNSUBSCRIBE, and RESET.
func TestNoMessageAfterUnsubscribe(t *testing.T) {
	var server atomic.Pointer[Server]
	s, addr := start(t, inMemory(), Options{Settings: []Setting{{Name: "publishes", Get: func() string {
		return formatInt(server.Load().pubsub.publish(channels, []byte("a"), []byte("m"), nil))
	}}}})
	server.Store(s)
	p := dial(t, addr)
	p.do("HELLO", "3")
	for _, end := range [][2]string{{encode("UNSUBSCRIBE", "a"), `push["unsubscribe" "a" :0]`}, {encode("UNSUBSCRIBE"), `push["unsubscribe" "a" :0]`}, {encode("RESET"), "+RESET"}} {
		p.send(encode("SUBSCRIBE", "a") + encode("CONFIG", "GET", "publishes") + end[0])
		p.expects(`push["subscribe" "a" :1]`, `{"publishes" "1"}`, `push["message" "a" "m"]`, end[1])
	}
}

// TestSubscribersMove: a connection receives messages from a loop, from a goroutine after it has
// left the loop, and from the loop after its return.
func TestSubscribersMove(t *testing.T) {
	s, addr := start(t, inMemory(), Options{Loops: 1, releaseAfter: time.Hour})
	p := dial(t, addr)
	p.do("HELLO", "3")
	p.do("SUBSCRIBE", "a")
	c := only(t, s)
	inLoop := func() bool { return c.looped.Owned() == nil }
	for range 3 {
		testrun.Until(t, "a loop has the connection", func() bool { return p.do("PING") == "+PONG" && inLoop() })
		s.pubsub.publish(channels, []byte("a"), []byte("to the loop"), nil)
		p.expects(`push["message" "a" "to the loop"]`)
		if got := p.do("DBSIZE"); got != ":0" || inLoop() {
			t.Errorf("%s; a loop has the connection: %t", got, inLoop())
		}
		s.pubsub.publish(channels, []byte("a"), []byte("to the goroutine"), nil)
		p.expects(`push["message" "a" "to the goroutine"]`)
	}
}

// holdsEcho is a user whose ECHO waits.
type holdsEcho struct {
	everybody
	begun, goOn chan struct{}
}

func (holdsEcho) Unrestricted() bool { return false }

func (u holdsEcho) MayRun(command string, _ Category) bool {
	if command == "echo" {
		u.begun <- struct{}{}
		<-u.goOn
	}
	return true
}

// TestMessagesPrecedeLaterReplies: a loop that publishes a message and then runs a command of
// the subscriber, which arrived after it, sends the message first.
func TestMessagesPrecedeLaterReplies(t *testing.T) {
	u := holdsEcho{begun: make(chan struct{}), goOn: make(chan struct{})}
	_, addr := start(t, inMemory(), Options{Loops: 1, Users: testUsers{anonymous: u}})
	publisher, listener := dial(t, addr), dial(t, addr)
	publisher.do("PING")
	listener.do("HELLO", "3")
	if got := listener.do("SUBSCRIBE", "a"); got != `push["subscribe" "a" :1]` {
		t.Fatal(got)
	}
	publisher.send(encode("ECHO", "waits"))
	testrun.Receive(t, "the command begins", u.begun)
	publisher.send(encode("PUBLISH", "a", "m"))
	listener.send(encode("PING", "later"))
	u.goOn <- struct{}{}
	publisher.expects(`"waits"`, ":1")
	listener.expects(`push["message" "a" "m"]`, `"later"`)
}

// TestMessagesWithoutReplies: CLIENT REPLY drops replies, not messages.
func TestMessagesWithoutReplies(t *testing.T) {
	pubsubVariants(t, func(_ *testing.T, _ *Server, connect func() *peer) {
		p := connect()
		p.do("HELLO", "3")
		p.do("SUBSCRIBE", "a")
		p.send(encode("CLIENT", "REPLY", "OFF") + encode("PUBLISH", "a", "one") + encode("SET", "k", "v") + encode("CLIENT", "REPLY", "ON"))
		p.expects(`push["message" "a" "one"]`, "+OK")
		p.send(encode("CLIENT", "REPLY", "SKIP") + encode("PUBLISH", "a", "two") + encode("PING", "heard"))
		p.expects(`push["message" "a" "two"]`, `"heard"`)
	})
}

// TestMessagesForManyOfALoop: a loop with more subscribers than it sends to at once sends all
// messages, also those that are published meanwhile.
func TestMessagesForManyOfALoop(t *testing.T) {
	_, addr := start(t, inMemory(), Options{Loops: 1, releaseAfter: time.Hour})
	publisher := dial(t, addr)
	var listeners []*peer
	for range pushesAtOnce + pushesAtOnce/2 {
		p := dial(t, addr)
		p.do("SUBSCRIBE", "a")
		listeners = append(listeners, p)
	}
	for range 20 {
		for range 2 { // the second while the loop sends the first
			if got := publisher.do("PUBLISH", "a", "m"); got != fmt.Sprint(":", len(listeners)) {
				t.Fatalf("%s subscribers", got)
			}
		}
		for _, p := range listeners {
			p.expects(`["message" "a" "m"]`, `["message" "a" "m"]`)
		}
	}
}

// slowListener subscribes with a small socket buffer and does not read afterwards.
func slowListener(t *testing.T, addr, channel string) *peer {
	t.Helper()
	p := dial(t, addr)
	if err := p.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if got := p.do("SUBSCRIBE", channel); got != `["subscribe" "`+channel+`" :1]` {
		t.Fatal(got)
	}
	return p
}

// TestSlowSubscribers: a subscriber that does not read is disconnected at the limit of its
// queue. Others receive all messages, and no memory is left behind.
func TestSlowSubscribers(t *testing.T) {
	for name, loops := range map[string]int{"loops": 1, "goroutines": -1} {
		t.Run(name, func(t *testing.T) {
			s, addr := start(t, inMemory(), Options{Loops: loops})
			publisher, fast := dial(t, addr), dial(t, addr)
			if got := publisher.do("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"); got != "+OK" {
				t.Fatal(got)
			}
			slowListener(t, addr, "a")
			fast.do("SUBSCRIBE", "a")
			payload := strings.Repeat("p", 50_000)
			message := `["message" "a" "` + payload + `"]`
			sent := 0
			testrun.Until(t, "the slow subscriber is disconnected", func() bool {
				publisher.do("PUBLISH", "a", payload)
				fast.expects(message)
				sent++
				return s.Metrics().Slow == 1
			})
			const buffers = 32 << 20 // more than the system keeps for a connection
			if n := sent * len(payload); n < 1<<20 || n > 1<<20+buffers {
				t.Errorf("after %d messages", sent)
			}
			testrun.Until(t, "its connection has ended and its memory is free", func() bool {
				m := s.Metrics()
				return m.Clients == 2 && m.ReplyBytes == 0
			})
			if got := publisher.do("PUBLISH", "a", "last"); got != ":1" {
				t.Errorf("%s subscribers", got)
			}
			fast.expects(`["message" "a" "last"]`)
		})
	}
}

// feeding is a listener whose connections publish a message after each write, so that a
// subscriber's queue is never empty.
type feeding struct {
	net.Listener
	server *Server
	on     atomic.Bool
}

type feedingConn struct {
	net.Conn
	by *feeding
}

func (f *feeding) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	return feedingConn{conn, f}, err
}

func (c feedingConn) Write(b []byte) (int, error) {
	on := c.by.on.Load() // before the client knows what is written
	n, err := c.Conn.Write(b)
	if on {
		c.by.server.pubsub.publish(channels, []byte("a"), []byte("m"), nil)
	}
	return n, err
}

// TestCommandsAmongMessages: a client for which there are always messages can send commands,
// and does not delay a shutdown.
func TestCommandsAmongMessages(t *testing.T) {
	feed := &feeding{Listener: listen(t)}
	store := inMemory()
	store.Logger = quietly
	st, err := kv.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	feed.server = NewServer(st, Options{Logger: quietly})
	served := make(chan error, 1)
	go func() { served <- feed.server.Serve(feed) }()
	p := dial(t, feed.Addr().String())
	p.send(encode("HELLO", "3") + encode("SUBSCRIBE", "a"))
	p.reply()
	p.expects(`push["subscribe" "a" :1]`)
	feed.on.Store(true)
	p.send(encode("ECHO", "first"))
	p.expects(`"first"`, `push["message" "a" "m"]`)
	p.send(encode("ECHO", "among messages"))
	for got := p.reply(); got != `"among messages"`; got = p.reply() {
		if got != `push["message" "a" "m"]` {
			t.Fatal(got)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, p.in) }() // until the server ends
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := errors.Join(feed.server.Shutdown(ctx), testrun.Receive(t, "Serve ends", served), st.Close()); err != nil {
		t.Error(err)
	}
}

// TestSoftLimit: a queue may exceed the soft limit for a time.
func TestSoftLimit(t *testing.T) {
	s := &Server{}
	s.pubsub.init(&s.replies)
	if err := s.pubsub.setLimits("pubsub 1000 100 60"); err != nil {
		t.Fatal(err)
	}
	sub := &subscriber{client: &client{server: s}}
	for _, step := range []struct {
		bytes int64
		later time.Duration
		want  bool
	}{
		{100, 0, false}, {101, 0, false}, {1000, 59 * time.Second, false}, {1001, 0, true}, {500, 2 * time.Second, true},
		{100, 0, false}, {101, 0, false}, {101, 59 * time.Second, false},
	} {
		if !sub.over.IsZero() {
			sub.over = sub.over.Add(-step.later)
		}
		if got := sub.tooLong(step.bytes); got != step.want {
			t.Errorf("%d bytes: %t", step.bytes, got)
		}
	}
}

// TestMessagesAreBounded: the messages for all subscribers take no more than the memory for
// replies. Those with the longest queues are disconnected, and others receive all messages.
func TestMessagesAreBounded(t *testing.T) {
	const most = leastReplies
	s, addr := start(t, inMemory(), Options{MaxReplies: most})
	publisher, fast := dial(t, addr), dial(t, addr)
	if got := publisher.do("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"); got != "+OK" {
		t.Fatal(got)
	}
	fast.do("SUBSCRIBE", "fast")
	var slow []*peer
	for i := range 4 {
		slow = append(slow, slowListener(t, addr, fmt.Sprint("slow", i)))
	}
	payload := strings.Repeat("p", 1<<20)
	n := 0
	testrun.Until(t, "slow subscribers are disconnected", func() bool {
		publisher.do("PUBLISH", fmt.Sprint("slow", n%len(slow)), payload)
		if got := publisher.do("PUBLISH", "fast", payload); got != ":1" {
			t.Fatalf("%s subscribers", got)
		}
		fast.expects(`["message" "fast" "` + payload + `"]`)
		if m := s.Metrics(); m.ReplyBytes > most {
			t.Fatalf("%d bytes of messages, at most %d are asked for", m.ReplyBytes, most)
		}
		n++
		return s.Metrics().Slow > 1
	})
	for _, p := range slow {
		_ = p.conn.Close()
	}
	testrun.Until(t, "their memory is free", func() bool { return s.Metrics().ReplyBytes == 0 })
}

// TestSubscriptionsAreBounded: names of subscriptions are charged to the memory for requests.
func TestSubscriptionsAreBounded(t *testing.T) {
	s, addr := start(t, inMemory(), Options{MaxBulk: 1 << 20, MaxRequest: 2 << 20, MaxBuffers: 4 << 20})
	p := dial(t, addr)
	name := strings.Repeat("n", 900_000)
	p.send(encode("SUBSCRIBE", name+"1", name+"2"))
	if got := p.reply(); !strings.HasPrefix(got, `["subscribe" "nnn`) {
		t.Errorf("%.50s", got)
	}
	if got := p.reply(); got != "-ERR "+errTooMuchInput.Error() {
		t.Errorf("%.50s", got)
	}
	if got := p.do("RESET"); got != "+RESET" {
		t.Errorf("%.50s", got)
	}
	p.send(encode("SUBSCRIBE", name+"2"))
	if got := p.reply(); !strings.HasPrefix(got, `["subscribe" "nnn`) {
		t.Errorf("%.50s", got)
	}
	_ = p.conn.Close()
	testrun.Until(t, "the names are given back", func() bool { return s.Metrics().RequestBytes == 0 })
}

// insist sends a command over new connections until one is answered. A busy machine may send it so
// late that the connection has been idle for too long.
func insist(t *testing.T, addr string, command ...string) (p *peer, reply string) {
	t.Helper()
	testrun.UntilNil(t, func() (err error) {
		p = dial(t, addr)
		if _, err = io.WriteString(p.conn, encode(command...)); err == nil {
			reply, err = readReply(p.in)
		}
		return err
	})
	return p, reply
}

// TestSubscribersAreNotIdle: a client that waits for messages is not disconnected.
func TestSubscribersAreNotIdle(t *testing.T) {
	pubsub := func(loops int) {
		s, addr := start(t, inMemory(), Options{Loops: loops, IdleTimeout: 20 * time.Millisecond})
		listener, _ := insist(t, addr, "SUBSCRIBE", "a")
		for range 3 { // each is idle for longer than the limit
			dial(t, addr).expectEnd()
		}
		if n := s.Metrics().Idle; n < 3 {
			t.Errorf("%d connections were idle", n)
		}
		if _, got := insist(t, addr, "PUBLISH", "a", "m"); got != ":1" {
			t.Errorf("%s subscribers", got)
		}
		listener.expects(`["message" "a" "m"]`)
	}
	pubsub(1)
	pubsub(-1)
}

// TestClientsThatSubscribe: CLIENT LIST and CLIENT KILL distinguish clients that subscribe, and
// INFO counts what they subscribe to.
func TestClientsThatSubscribe(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p, listener := dial(t, addr), dial(t, addr)
	listener.send(encode("SUBSCRIBE", "a", "b") + encode("PSUBSCRIBE", "c*") + encode("SSUBSCRIBE", "d", "e", "f"))
	for range 6 {
		listener.reply()
	}
	if got := p.do("CLIENT", "LIST", "TYPE", "pubsub"); !strings.Contains(got, "flags=P db=0 sub=2 psub=1 ssub=3 ") || strings.Count(got, "id=") != 1 {
		t.Error(got)
	}
	if got := p.do("CLIENT", "LIST", "TYPE", "normal"); !strings.Contains(got, "flags=N db=0 sub=0 psub=0 ssub=0 ") || strings.Count(got, "id=") != 1 {
		t.Error(got)
	}
	if got := p.do("INFO", "stats"); !strings.Contains(got, `pubsub_channels:2\r\npubsub_patterns:1\r\npubsubshard_channels:3\r\n`) {
		t.Error(got)
	}
	if got := p.do("CLIENT", "KILL", "TYPE", "pubsub"); got != ":1" {
		t.Error(got)
	}
	listener.expectEnd()
	testrun.Until(t, "it has no subscriptions", func() bool { return p.do("PUBSUB", "CHANNELS") == "[]" })
}

// TestChannelPermissions: commands on channels need permission for the channels.
func TestChannelPermissions(t *testing.T) {
	_, addr := start(t, inMemory(), Options{Users: testUsers{anonymous: listener{}}})
	p := dial(t, addr)
	for _, tc := range []struct{ command, want string }{
		{"SET a 1", "+OK"},
		{"PUBLISH a m", ":0"},
		{"PUBLISH b m", "-" + errNoChannel},
		{"SPUBLISH b m", "-" + errNoChannel},
		{"SUBSCRIBE a b", "-" + errNoChannel},
		{"PSUBSCRIBE a", "-" + errNoChannel},
		{"PSUBSCRIBE a*", `["psubscribe" "a*" :1]`},
		{"PUNSUBSCRIBE b", `["punsubscribe" "b" :1]`},
		{"SUNSUBSCRIBE b", `["sunsubscribe" "b" :0]`},
	} {
		if got := p.do(strings.Fields(tc.command)...); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.command, got, tc.want)
		}
	}
}

// listener may do everything on the channel a and the pattern a*.
type listener struct{ everybody }

func (listener) MayJoin(channel []byte, pattern bool) bool {
	return !pattern && string(channel) == "a" || pattern && string(channel) == "a*"
}

// TestManySubscribers: each of many connections receives each message.
func TestManySubscribers(t *testing.T) {
	testrun.SkipRaced(t, "many connections")
	allowFiles(t, uint64(crowd)+1000)
	s, addr := start(t, inMemory(), Options{MaxClients: crowd + 1})
	publisher := dial(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	if err := publisher.conn.SetDeadline(time.Now().Add(5 * patience)); err != nil {
		t.Fatal(err)
	}
	// The clients are in another process, since one process may not open files for both ends.
	them := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBeTheSubscribers$")
	them.Env = append(os.Environ(), crowdVariable+"="+addr)
	them.Stderr = os.Stderr
	told, err := them.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := them.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(told)
	if line, err := lines.ReadString('\n'); err != nil || line != crowdIsHere {
		t.Errorf("the subscribers say %q: %v", line, err)
	}
	for n := range crowdMessages {
		if got := publisher.do("PUBLISH", "all", fmt.Sprint(n)); got != fmt.Sprint(":", crowd) {
			t.Errorf("%s subscribers", got)
		}
	}
	if line, err := lines.ReadString('\n'); err != nil || line != crowdHasHeard {
		t.Errorf("the subscribers say %q: %v", line, err)
	}
	if err := them.Wait(); err != nil {
		t.Error(err)
	}
	testrun.Until(t, "all are gone", func() bool { return publisher.do("PUBSUB", "CHANNELS") == "[]" })
	if m := s.Metrics(); m.ReplyBytes != 0 || m.Slow != 0 {
		t.Errorf("%d bytes of messages are left, %d subscribers were disconnected", m.ReplyBytes, m.Slow)
	}
}

const (
	crowdMessages = 10
	crowdHasHeard = "heard\n"
)

// TestBeTheSubscribers is the process with the clients of TestManySubscribers.
func TestBeTheSubscribers(t *testing.T) {
	addr := os.Getenv(crowdVariable)
	if addr == "" {
		t.Skip("for TestManySubscribers")
	}
	allowFiles(t, uint64(crowd)+1000)
	conns := make([]net.Conn, crowd)
	exactly := func(i int, want string) error {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conns[i], got); err != nil || string(got) != want {
			return fmt.Errorf("subscriber %d received %q, want %q: %w", i, got, want, errors.Join(err, errBadReply))
		}
		return nil
	}
	crowded(t, func(i int) (err error) {
		if conns[i], err = net.Dial("tcp", addr); err != nil {
			return err
		}
		own := fmt.Sprintf("own%06d", i)
		if _, err := io.WriteString(conns[i], encode("SUBSCRIBE", "all", own)); err != nil {
			return err
		}
		return exactly(i, "*3\r\n$9\r\nsubscribe\r\n$3\r\nall\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$9\r\n"+own+"\r\n:2\r\n")
	})
	fmt.Print(crowdIsHere)
	var want strings.Builder
	for n := range crowdMessages {
		want.WriteString(encode("message", "all", fmt.Sprint(n)))
	}
	crowded(t, func(i int) error { return exactly(i, want.String()) })
	for _, conn := range conns {
		_ = conn.Close()
	}
	if !t.Failed() {
		fmt.Print(crowdHasHeard)
	}
}

// BenchmarkPublish measures a message to all subscribers, from PUBLISH until each has received
// it. An operation is a PUBLISH.
func BenchmarkPublish(b *testing.B) {
	for _, subscribers := range []int{0, 1, 50} {
		for _, size := range []int{16, 1024} {
			b.Run(fmt.Sprintf("subscribers=%d/size=%d", subscribers, size), func(b *testing.B) {
				_, addr := start(b, inMemory(), Options{})
				payload := strings.Repeat("p", size)
				message := []byte(encode("message", "channel", payload))
				var listeners []*peer
				for range subscribers {
					p := dial(b, addr)
					p.do("SUBSCRIBE", "channel")
					listeners = append(listeners, p)
				}
				p := dial(b, addr)
				request := []byte(encode("PUBLISH", "channel", payload))
				reply := make([]byte, len(fmt.Sprintf(":%d\r\n", subscribers)))
				received := make([]byte, len(message))
				b.ReportAllocs()
				for b.Loop() {
					p.exchange(request, reply)
					for _, l := range listeners {
						if _, err := io.ReadFull(l.conn, received); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// TestMessagesBesideALargeReply: a message that is published while a reply is sent in part comes after the reply.
func TestMessagesBesideALargeReply(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, s *Server, connect func() *peer) {
		p, publisher := connect(), connect()
		p.do("HELLO", "3")
		mget := []string{"MGET"}
		for i := range 300 {
			publisher.do("SET", fmt.Sprint(i), strings.Repeat("v", 64<<10))
			mget = append(mget, fmt.Sprint(i))
		}
		p.do("SUBSCRIBE", "a")
		p.send(encode(mget...))
		testrun.Until(t, "the reply is sent", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			for c := range s.clients {
				if c.output.since.Load() != 0 {
					return true
				}
			}
			return false
		})
		if got := publisher.do("PUBLISH", "a", "m"); got != ":1" {
			t.Error(got)
		}
		if got := p.reply(); strings.Count(got, "vvv\"") != 300 || strings.Contains(got, "push") {
			t.Errorf("%d values of 300, %.40q", strings.Count(got, "vvv\""), got)
		}
		if got := p.reply(); got != `push["message" "a" "m"]` {
			t.Errorf("%.80q", got)
		}
	})
}

// TestMessagesAfterAWriteWithoutReply: a write whose reply the client does not want keeps no message back.
func TestMessagesAfterAWriteWithoutReply(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, _ *Server, connect func() *peer) {
		p, publisher := connect(), connect()
		p.do("HELLO", "3")
		p.do("SUBSCRIBE", "a")
		p.send(encode("CLIENT", "REPLY", "OFF"))
		p.send(encode("SET", "k", "v"))
		testrun.Until(t, "the write is done", func() bool { return publisher.do("GET", "k") == `"v"` })
		if got := publisher.do("PUBLISH", "a", "m"); got != ":1" {
			t.Error(got)
		}
		if got := p.reply(); got != `push["message" "a" "m"]` {
			t.Error(got)
		}
		if got := p.do("CLIENT", "REPLY", "ON"); got != "+OK" {
			t.Error(got)
		}
	})
}

// slowConn is a connection whose writes take long.
type slowConn struct {
	net.Conn
	written int
}

func (c *slowConn) Write(b []byte) (int, error) {
	time.Sleep(2 * pushFor)
	c.written += len(b)
	return len(b), nil
}

func (c *slowConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *slowConn) SetWriteDeadline(time.Time) error { return nil }
func (c *slowConn) SetReadDeadline(time.Time) error  { return nil }

// TestMessagesAreSentWhole: no message is left in part when the sending of messages takes too long, as replies are
// sent next.
func TestMessagesAreSentWhole(t *testing.T) {
	s, _ := start(t, inMemory(), Options{})
	synctest.Test(t, func(t *testing.T) {
		conn := &slowConn{}
		c := &client{server: s, conn: conn, in: newInput(conn, &s.opts, &s.large)}
		sub := c.subscriber()
		defer c.endSubscriptions()
		for range 2 {
			m := &message{data: make([]byte, 3*outputChunk)}
			m.refs.Store(1)
			if _, ok := sub.offer(m); !ok {
				t.Fatal("the message is refused")
			}
		}
		if c.push(); conn.written != 3*outputChunk || sub.inPart() {
			t.Errorf("%d bytes are sent, %d of the next message", conn.written, sub.at)
		}
	})
}
