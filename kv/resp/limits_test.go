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
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/selfsigned"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// startOn is start with the test's own listener.
func startOn(t testing.TB, ln net.Listener, opts Options) *Server {
	t.Helper()
	options := inMemory()
	options.Logger, opts.Logger = quietly, quietly
	st, err := kv.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(st, opts)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), testrun.Receive(t, "Serve ends", served), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// TestIdleTimeout: a client that sends nothing, or half a command, for too long is
// disconnected.
func TestIdleTimeout(t *testing.T) {
	s, addr := start(t, inMemory(), Options{IdleTimeout: 20 * time.Millisecond})
	idle, half := dial(t, addr), dial(t, addr)
	half.send("*2\r\n$3\r\nGET\r\n$100\r\nabc")
	idle.expectEnd()
	half.expectEnd()
	if n := s.Metrics().Idle; n != 2 {
		t.Errorf("%d connections were idle", n)
	}
}

// foreign is a listener whose clients appear to come from another machine.
type foreign struct{ net.Listener }

type foreigner struct{ *net.TCPConn }

func (foreigner) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7}
}

func (f foreign) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return foreigner{conn.(*net.TCPConn)}, nil
}

// TestProtectedMode: clients of other machines are rejected, and their commands are not run.
func TestProtectedMode(t *testing.T) {
	ln := listen(t)
	s := startOn(t, foreign{ln}, Options{ProtectedMode: true})
	p := dial(t, ln.Addr().String())
	p.send(encode("SET", "a", "1"))
	if got := p.reply(); !strings.HasPrefix(got, "-DENIED ") {
		t.Error(got)
	}
	p.expectEnd()
	if _, err := s.store.Read(context.Background(), []byte("a"), nil); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("a refused client has written: %v", err)
	}
	if n := s.Metrics().Rejected; n != 1 {
		t.Errorf("%d clients refused", n)
	}
	_, addr := start(t, inMemory(), Options{ProtectedMode: true})
	if got := dial(t, addr).do("PING"); got != "+PONG" {
		t.Errorf("a client of this machine: %s", got)
	}
	ln = listen(t)
	startOn(t, foreign{ln}, Options{})
	if got := dial(t, ln.Addr().String()).do("PING"); got != "+PONG" {
		t.Errorf("without protected mode: %s", got)
	}
}

// certificate returns the configurations of a server on this machine and of a client that
// trusts it.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	c, err := selfsigned.New()
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{c.Certificate}}, &tls.Config{RootCAs: c.Authority}
}

// TestTLS: over TLS the protocol is the same, final errors arrive, and clients that do not
// speak TLS do not delay others.
func TestTLS(t *testing.T) {
	server, client := certificate(t)
	ln := listen(t)
	addr := ln.Addr().String()
	s := startOn(t, tls.NewListener(ln, server), Options{MaxClients: 3, releaseAfter: time.Millisecond})
	silent, plain := dial(t, addr), dial(t, addr)
	plain.send(encode("SET", "a", "plain"))
	_, _ = io.Copy(io.Discard, plain.in) // an alert, then the end
	testrun.Until(t, "who does not speak TLS is forgotten", func() bool { return s.Metrics().Clients == 1 })

	conn, err := tls.Dial("tcp", addr, client)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	p := dialed(t, conn)
	value := strings.Repeat("v", 1<<20)
	if got := p.do("SET", "a", value); got != "+OK" {
		t.Error(got)
	}
	testrun.Until(t, "large buffers are given back", func() bool { return s.Metrics().RequestBytes == 0 })
	if got := p.do("STRLEN", "a"); got != ":1048576" {
		t.Error(got)
	}
	p.send("*1\r\n?")
	if got := p.reply(); got != "-ERR Protocol error: expected '$', got '?'" {
		t.Error(got)
	}
	p.expectEnd()
	_ = silent.conn // closed by the server on shutdown
}

// TestRepliesAreBounded: unread replies take no more than their budget, and clients that read
// are served meanwhile.
func TestRepliesAreBounded(t *testing.T) {
	testrun.SkipRaced(t, "the detector looks at each word of 40 times 10 MB")
	const most, clients = leastReplies, 40
	s, addr := start(t, inMemory(), Options{MaxReplies: most, Sessions: 4})
	reader := dial(t, addr)
	if got := reader.do("SET", "a", strings.Repeat("v", 100_000)); got != "+OK" {
		t.Fatal(got)
	}
	var greedy []*peer
	for range clients {
		p := dial(t, addr)
		if err := p.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		p.send(strings.Repeat(encode("GET", "a"), 200))
		greedy = append(greedy, p)
	}
	testrun.Until(t, "clients that do not read are cut off", func() bool {
		m := s.Metrics()
		if m.ReplyBytes > most {
			t.Fatalf("%d bytes of replies, at most %d are asked for", m.ReplyBytes, most)
		}
		if got := reader.do("STRLEN", "a"); got != ":100000" {
			t.Fatal(got)
		}
		return m.Slow > clients/4
	})
	for _, p := range greedy {
		_ = p.conn.Close()
	}
	testrun.Until(t, "their memory is free", func() bool { return s.Metrics().ReplyBytes == 0 })
}

// TestFlushBesideWaitingReplies: what waits for all batches does not wait for a client whose replies
// have no room.
func TestFlushBesideWaitingReplies(t *testing.T) {
	s, addr := start(t, inMemory(), Options{MaxReplies: leastReplies, Loops: -1})
	p, other := dial(t, addr), dial(t, addr)
	value := strings.Repeat("v", 100_000)
	if got := p.do("SET", "a", value); got != "+OK" {
		t.Fatal(got)
	}
	testrun.Until(t, "the budget is free", func() bool { return s.replies.take(leastReplies) })
	p.send(encode("GET", "a"))
	testrun.Until(t, "the replies wait for room", func() bool { return s.replies.waiting.Load() == 1 })
	if got := other.do("FLUSHALL"); got != "+OK" {
		t.Error(got)
	}
	s.replies.give(leastReplies)
	if got := p.reply(); got != `"`+value+`"` {
		t.Errorf("%.100s", got)
	}
	if got := p.do("FLUSHALL") + other.do("GET", "a"); got != "+OKnil" {
		t.Error(got)
	}
}

// TestNoCommandIsHalf: the connection of a client that does not read its replies ends before or after a
// command of several keys, a transaction or a script, and not in the middle.
func TestNoCommandIsHalf(t *testing.T) {
	var keys, pairs []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint("key", i))
		pairs = append(pairs, keys[i], "1")
	}
	for name, pipeline := range map[string]string{
		"MSET":     encode(append([]string{"MSET"}, pairs...)...),
		"DEL":      encode(append([]string{"DEL"}, keys...)...),
		"EXEC":     encode("MULTI") + encode("SUNIONSTORE", "key0", "s") + encode("SET", "key1", "1") + encode("EXEC"),
		"a script": encode("EVAL", "redis.call('sunionstore', KEYS[1], KEYS[3]); redis.call('set', KEYS[2], 1)", "3", "key0", "key1", "s"),
	} {
		t.Run(name, func(t *testing.T) {
			s, addr := start(t, inMemory(), Options{Loops: -1})
			reader := dial(t, addr)
			if got := reader.do("SET", "big", strings.Repeat("v", 1_900_000)) + reader.do("SADD", "s", "x"); got != "+OK:1" {
				t.Fatal(got)
			}
			if name == "DEL" {
				reader.do(append([]string{"MSET"}, pairs...)...)
			}
			p := dial(t, addr)
			if err := p.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
				t.Fatal(err)
			}
			p.send(strings.Repeat(encode("GET", "big"), 10) + pipeline) // more than the system's buffers hold
			testrun.Until(t, "the server waits for the client to read", func() bool {
				return slices.ContainsFunc(s.all(), func(c *client) bool { return c.output.since.Load() != 0 })
			})
			if err := p.conn.Close(); err != nil {
				t.Fatal(err)
			}
			testrun.Until(t, "the client is gone", func() bool { return s.Metrics().Clients == 1 })
			switch got := reader.do(append([]string{"EXISTS"}, keys...)...); {
			case got == ":0", got == ":100", got == ":2" && name != "MSET" && name != "DEL":
			default:
				t.Errorf("%s of the keys exist", got)
			}
		})
	}
}

// TestArgumentsAreBounded: the parser's memory for the arguments of incomplete commands is
// charged to the budget.
func TestArgumentsAreBounded(t *testing.T) {
	const most = 8 << 20
	s, addr := start(t, inMemory(), Options{MaxBulk: 1 << 20, MaxRequest: 4 << 20, MaxBuffers: most})
	var peers []*peer
	for range 8 {
		p := dial(t, addr)
		_, _ = io.WriteString(p.conn, "*1000000\r\n"+strings.Repeat("$0\r\n\r\n", 200_000)) // may be cut off
		peers = append(peers, p)
	}
	testrun.Until(t, "somebody is refused", func() bool { return s.Metrics().Clients < len(peers) })
	if held := s.Metrics().RequestBytes; held > most {
		t.Errorf("%d bytes of requests, at most %d are asked for", held, most)
	}
	if got := dial(t, addr).do("PING"); got != "+PONG" {
		t.Error(got)
	}
	for _, p := range peers {
		_ = p.conn.Close()
	}
	testrun.Until(t, "their memory is free", func() bool { return s.Metrics().RequestBytes == 0 })
}

// TestUnauthenticatedClientsSendLittle: the commands of clients that have not authenticated are limited.
func TestUnauthenticatedClientsSendLittle(t *testing.T) {
	for sent, want := range map[string]string{
		"*11\r\n":                       "Protocol error: unauthenticated multibulk length",
		"a b c d e f g h i j k\r\n":     "Protocol error: unauthenticated multibulk length",
		"*2\r\n$3\r\nGET\r\n$16385\r\n": "Protocol error: unauthenticated bulk length",
		"*2\r\n$3\r\nGET\r\n$16384\r\n": "",
		"*10\r\n$3\r\nDEL\r\n":          "",
	} {
		p := parser{maxBulk: 1 << 20, maxRequest: 1 << 20, unauthenticated: true}
		size, err := p.next([]byte(sent))
		if size != 0 || (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: %d, %v", sent, size, err)
		}
	}
}

// crowd is the number of concurrent connections.
var crowd = testrun.Scale(300, 1000, 10_000)

// TestManyConnections opens connections that are idle, in the middle of a command, or
// do not read. Each takes little memory, others are served, and nothing is left behind.
func TestManyConnections(t *testing.T) {
	testrun.SkipRaced(t, "10 MB a second at most under the detector")
	allowFiles(t, uint64(crowd)+1000)
	const replies, requests = leastReplies, 8 << 20
	s, addr := start(t, inMemory(), Options{
		MaxBulk: 1 << 20, MaxRequest: 2 << 20, MaxBuffers: requests, MaxReplies: replies, Sessions: 4,
		MaxClients: crowd + 1, releaseAfter: time.Millisecond,
	})
	reader := dial(t, addr)
	if got := reader.do("SET", "a", strings.Repeat("v", 50_000)); got != "+OK" {
		t.Fatal(got)
	}
	before := heap()
	// The clients are in another process, since one process may not open files for both ends.
	long := 5 * patience
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if err := reader.conn.SetDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	them := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBeTheCrowd$")
	them.Env = append(os.Environ(), crowdVariable+"="+addr)
	them.Stderr = os.Stderr
	leave, err := them.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	told, err := them.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := them.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(told).ReadString('\n')
	if err != nil || line != crowdIsHere {
		t.Errorf("the crowd says %q: %v", line, err)
	}
	if got := reader.do("STRLEN", "a"); got != ":50000" {
		t.Error(got)
	}
	testrun.UntilNil(t, func() error { // the system connects clients before the server takes them
		if n := s.Metrics().Connections; n < uint64(crowd)+1 {
			return fmt.Errorf("%d connections came", n)
		}
		return nil
	})
	m := s.Metrics()
	if m.Connections != uint64(crowd)+1 || m.Rejected != 0 {
		t.Errorf("%d connections came, %d were rejected", m.Connections, m.Rejected)
	}
	if m.ReplyBytes > replies || m.RequestBytes > requests {
		t.Errorf("%d bytes of replies and %d of requests", m.ReplyBytes, m.RequestBytes)
	}
	// Besides the budgets, each connection has a goroutine, its structures and small buffers. What is
	// garbage when a collection begins beside the last requests is freed by a later one.
	const each = restingBuffer + restingOutput + 16<<10
	testrun.UntilNil(t, func() error {
		if used := heap() - before; used > replies+requests+int64(crowd)*each {
			return fmt.Errorf("%d bytes for %d connections", used, m.Clients)
		}
		return nil
	})
	if err := errors.Join(leave.Close(), them.Wait()); err != nil {
		t.Error(err)
	}
	testrun.Until(t, "all are gone", func() bool { return s.Metrics().Clients == 1 })
	if m := s.Metrics(); m.ReplyBytes != 0 || m.RequestBytes != 0 {
		t.Errorf("%d bytes of replies and %d of requests are left", m.ReplyBytes, m.RequestBytes)
	}
}

const (
	crowdVariable = "RESP_TEST_CROWD" // the server's address
	crowdIsHere   = "here\n"
)

// TestBeTheCrowd is the process with the clients of TestManyConnections.
func TestBeTheCrowd(t *testing.T) {
	addr := os.Getenv(crowdVariable)
	if addr == "" {
		t.Skip("for TestManyConnections")
	}
	allowFiles(t, uint64(crowd)+1000)
	conns := make([]net.Conn, crowd)
	crowded(t, func(i int) error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		conns[i] = conn
		var sent string
		switch i % 3 {
		case 1:
			sent = "*2\r\n$3\r\nGET\r\n$100000\r\n" + strings.Repeat("x", 3000)
		case 2:
			sent = strings.Repeat(encode("GET", "a"), 40)
		}
		_, _ = io.WriteString(conn, sent) // may be cut off if there are too many clients
		return nil
	})
	fmt.Print(crowdIsHere)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// crowded calls do for each client of a crowd, from several goroutines, each of which ends with an
// error.
func crowded(t *testing.T, do func(i int) error) {
	const parts = 8
	var all sync.WaitGroup
	for part := range parts {
		all.Go(func() {
			for i := part; i < crowd; i += parts {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// allowFiles raises the limit of open files until the test ends, or skips the test.
func allowFiles(t *testing.T, n uint64) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if before.Cur >= n {
		return
	}
	more := unix.Rlimit{Cur: n, Max: max(before.Max, n)} // above Max only with privileges
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &more); err != nil {
		t.Skipf("%d files may be open, want %d: %v", before.Cur, n, err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
}

// heap returns the bytes in use after a collection, including stacks.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestValuesAreNotKept: a connection that has copied a large value does not keep it.
func TestValuesAreNotKept(t *testing.T) {
	for _, name := range []string{"COPY", "RENAME", "RENAMENX"} {
		s, addr := start(t, inMemory(), Options{})
		p := dial(t, addr)
		for _, args := range [][]string{{"SET", "a", strings.Repeat("v", 1<<20)}, {name, "a", "b"}} {
			if got := p.do(args...); got != "+OK" && got != ":1" {
				t.Fatal(got)
			}
		}
		c := only(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if c.taken != nil {
			t.Errorf("after %s the connection keeps %d bytes", name, len(c.taken))
		}
	}
}

// TestRequestsAreNotKept: a connection that a loop has given away for a large request, or for one of many
// words, keeps nothing of it when it is idle.
func TestRequestsAreNotKept(t *testing.T) {
	testrun.SkipRaced(t, "it measures memory")
	const clients, size = 16, 4 << 20
	store := inMemory()
	store.Memory = 256 << 20 // with pages that hold the value
	_, addr := start(t, store, Options{Loops: 1, Sessions: 2, releaseAfter: 20 * time.Millisecond})
	set := encode("MSET", "a", strings.Repeat("v", size), "b", strings.Repeat("w", size))
	words := "EXISTS" + strings.Repeat(" x", 8000) + "\r\n"
	var all [clients]*peer
	for i := range all {
		all[i] = dial(t, addr)
		if got := all[i].do("PING"); got != "+PONG" {
			t.Fatal(got)
		}
	}
	for what, tc := range map[string]struct {
		request, reply string
		most           int64
	}{"MSET": {set, "+OK", 2 * size}, "many words": {words, ":0", 1 << 20}} {
		before := heap()
		for _, p := range all {
			if p.send(tc.request); p.reply() != tc.reply {
				t.Fatalf("%s: not %s", what, tc.reply)
			}
		}
		testrun.UntilNil(t, func() error {
			if grown := heap() - before; grown > tc.most {
				return fmt.Errorf("%s: the heap has grown by %d bytes", what, grown)
			}
			return nil
		})
	}
}
