package resp

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// TestProtocolErrors: a protocol error is answered as by Redis, after the replies to earlier
// commands, and ends the connection.
func TestProtocolErrors(t *testing.T) {
	_, addr := start(t, inMemory(), Options{MaxBulk: 1 << 10, MaxRequest: 1 << 17})
	for sent, want := range map[string]string{
		"*1\r\nPING\r\n":           "-ERR Protocol error: expected '$', got 'P'",
		"*1\r\n\r\n":               "-ERR Protocol error: expected '$', got ' '",
		"*1\r\n$x\r\n":             "-ERR Protocol error: invalid bulk length",
		"*1\r\n$-1\r\n":            "-ERR Protocol error: invalid bulk length",
		"*1\r\n$1025\r\n":          "-ERR Protocol error: invalid bulk length",
		"*1\r\n$2000000000000\r\n": "-ERR Protocol error: invalid bulk length",
		"*99999999999\r\n":         "-ERR Protocol error: invalid multibulk length",
		"*1048577\r\n":             "-ERR Protocol error: invalid multibulk length",
		"GET \"\r\n":               "-ERR Protocol error: unbalanced quotes in request",

		"PING" + strings.Repeat(" ", maxLine):                                         "-ERR Protocol error: too big inline request",
		"*" + strings.Repeat("1", maxLine):                                            "-ERR Protocol error: too big mbulk count string",
		"*1\r\n$" + strings.Repeat("1", maxLine):                                      "-ERR Protocol error: too big bulk count string",
		encode(strings.Fields(strings.Repeat(strings.Repeat("x", 1024)+" ", 128))...): "-ERR Protocol error: too big request",
	} {
		p := dial(t, addr)
		p.send(encode("SET", "a", "1") + "PING\r\n")
		if got := p.reply() + p.reply(); got != "+OK+PONG" {
			t.Error(got)
		}
		p.send(sent)
		if got := p.reply(); got != want {
			t.Errorf("%.40q: %s, want %s", sent, got, want)
		}
		p.expectEnd()
	}
}

// TestSizesOfRequests runs a command that arrives byte by byte, one that is larger than any
// buffer, and one that is larger than a batch.
func TestSizesOfRequests(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	for _, b := range []byte(encode("SET", "a", "byte by byte")) {
		p.send(string(b))
	}
	if got := p.reply() + p.do("GET", "a"); got != `+OK"byte by byte"` {
		t.Error(got)
	}
	for _, size := range []int{newBuffer, restingBuffer, largeBatch, 1 << 20} {
		value := strings.Repeat("v", size)
		if got := p.do("SET", "large", value); got != "+OK" {
			t.Fatal(got)
		}
		if got := p.do("GET", "large"); got != `"`+value+`"` {
			t.Errorf("a value of %d bytes comes back as %.40s…", size, got)
		}
	}
	const keys = 10_000
	set, get, want := []string{"MSET"}, []string{"MGET"}, make([]string, keys)
	for i := range keys {
		key, value := fmt.Sprintf("key%d", i), fmt.Sprintf("value%d", i)
		set, get, want[i] = append(set, key, value), append(get, key), `"`+value+`"`
	}
	if got := p.do(set...); got != "+OK" {
		t.Error(got)
	}
	if got := p.do(get...); got != "["+strings.Join(want, " ")+"]" {
		t.Errorf("%.100s…", got)
	}
	get[0] = "DEL"
	if got := p.do(get...); got != fmt.Sprint(":", keys) {
		t.Error(got)
	}
	get[0] = "EXISTS"
	if got := p.do(get...); got != ":0" {
		t.Error(got)
	}
}

// TestTooLargeForTheStore: a value that the store cannot hold is an error and does not end the
// connection.
func TestTooLargeForTheStore(t *testing.T) {
	_, addr := start(t, cold(), Options{MaxBulk: 20 << 10})
	p := dial(t, addr)
	large := strings.Repeat("v", 18<<10)
	for _, args := range [][]string{
		{"SET", "a", large}, {"SET", "a", large, "NX"}, {"APPEND", "a", large}, {"MSET", "b", "1", "a", large},
		{"SET", large, "1"}, {"GETSET", "a", large},
	} {
		if got := p.do(args...); !strings.HasPrefix(got, "-ERR kv: bad key or value size: ") {
			t.Errorf("%s: %.100s", args[0], got)
		}
	}
	if got := p.do("GET", large); got != "nil" {
		t.Errorf("%.100s", got)
	}
	small := large[:11<<10]
	if got := p.do("APPEND", "a", small); got != fmt.Sprint(":", len(small)) {
		t.Error(got)
	}
	if got := p.do("APPEND", "a", small); got != "-"+errTooLong {
		t.Error(got)
	}
	if got := p.do("STRLEN", "a"); got != fmt.Sprint(":", len(small)) {
		t.Error(got)
	}
}

// TestMaxBuffers: large requests of all connections take no more than their budget.
// Connections that exceed it get an error, and others are served.
func TestMaxBuffers(t *testing.T) {
	s, addr := start(t, inMemory(), Options{MaxBulk: 1 << 20, MaxRequest: 2 << 20, MaxBuffers: 4 << 20})
	whole := encode("SET", "a", strings.Repeat("v", 1<<20))
	half := len(whole) / 2
	const peers = 8
	var clients [peers]*peer
	for i := range clients {
		clients[i] = dial(t, addr)
		// Fails if the server has already refused the request.
		_, _ = clients[i].conn.Write([]byte(whole[:half]))
		if used := s.large.used.Load(); used > s.large.most {
			t.Errorf("%d bytes in use of %d", used, s.large.most)
		}
	}
	// No half request is answered: the server holds what it has read of each.
	refused := 0
	for _, p := range clients {
		_, _ = p.conn.Write([]byte(whole[half:]))
		got, err := readReply(p.in)
		if err == nil && got != "+OK" && got != "-ERR "+errTooMuchInput.Error() {
			t.Error(got)
		}
		if got != "+OK" {
			refused++
			_ = p.conn.Close()
		}
	}
	if refused == 0 || refused == peers {
		t.Errorf("%d of %d requests of 1 MiB are refused in 4 MiB", refused, peers)
	}
	if got := dial(t, addr).do("GET", "none"); got != "nil" {
		t.Error(got)
	}
}

// TestIdleConnectionIsSmall: an idle connection frees its large buffers.
func TestIdleConnectionIsSmall(t *testing.T) {
	s, addr := start(t, inMemory(), Options{releaseAfter: time.Millisecond})
	p := dial(t, addr)
	if got := p.do("SET", "a", strings.Repeat("v", 1<<20)); got != "+OK" {
		t.Fatal(got)
	}
	testrun.Until(t, "its large buffers are given back", func() bool { return s.large.used.Load() == 0 })
	if got := p.do("STRLEN", "a"); got != ":1048576" {
		t.Error(got)
	}
}

// TestClientThatDoesNotRead: a client that does not read its replies is disconnected.
// Meanwhile its memory is bounded: the server stops reading its commands.
func TestClientThatDoesNotRead(t *testing.T) {
	_, addr := start(t, inMemory(), Options{WriteTimeout: 50 * time.Millisecond})
	p := dial(t, addr)
	if got := p.do("SET", "a", strings.Repeat("v", 100_000)); got != "+OK" {
		t.Fatal(got)
	}
	if err := p.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	commands := strings.Repeat(encode("GET", "a"), 1000)
	for {
		if _, err := p.conn.Write([]byte(commands)); err != nil {
			if isTimeout(err) {
				t.Error("the server waits for ever")
			}
			break
		}
	}
	if got := dial(t, addr).do("STRLEN", "a"); got != ":100000" {
		t.Error(got)
	}
}

func TestMaxClients(t *testing.T) {
	_, addr := start(t, inMemory(), Options{MaxClients: 2})
	a, b := dial(t, addr), dial(t, addr)
	if got := a.do("PING") + b.do("PING"); got != "+PONG+PONG" {
		t.Error(got)
	}
	c := dial(t, addr)
	if got := c.reply(); got != "-ERR max number of clients reached" {
		t.Error(got)
	}
	c.expectEnd()
	if got := a.do("QUIT"); got != "+OK" {
		t.Error(got)
	}
	a.expectEnd()
	// The server removes a client shortly after closing its connection.
	testrun.Until(t, "a new client is let in", func() bool {
		d := dial(t, addr)
		_, sent := io.WriteString(d.conn, "PING\r\n") // fails if the server has closed the connection
		got, err := readReply(d.in)
		return sent == nil && err == nil && got == "+PONG"
	})
}

// TestIdleConnectionsHoldNoSession: idle connections hold no session.
func TestIdleConnectionsHoldNoSession(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	for range 300 {
		if got := dial(t, addr).do("INCR", "n"); !strings.HasPrefix(got, ":") {
			t.Fatal(got)
		}
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if made := s.opts.Sessions - s.pool.spare; made != 1 {
		t.Errorf("%d sessions for one request at a time", made)
	}
}

// TestHTTP: the requests of a browser on behalf of a web page are not run.
func TestHTTP(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	for _, sent := range []string{"POST / HTTP/1.1\r\nSET a 1\r\n", "PING\r\nHost: localhost\r\nSET a 1\r\n"} {
		p := dial(t, addr)
		p.send(sent)
		if strings.HasPrefix(sent, "PING") {
			if got := p.reply(); got != "+PONG" {
				t.Error(got)
			}
		}
		p.expectEnd()
	}
	if got := dial(t, addr).do("GET", "a"); got != "nil" {
		t.Error(got)
	}
}

// TestFixedSizes: a store of fixed-size records accepts values of that size, and refuses
// others with an error.
func TestFixedSizes(t *testing.T) {
	options := inMemory()
	options.KeySize, options.ValueSize = 8, 8
	_, addr := start(t, options, Options{})
	p := dial(t, addr)
	for _, tc := range []struct{ command, want string }{
		{"SET 12345678 abcdefgh", "+OK"},
		{"GET 12345678", `"abcdefgh"`},
		{"GETSET 12345678 ABCDEFGH", `"abcdefgh"`},
		{"SETNX 12345678 abcdefgh", ":0"},
		{"SET 12345678 short", "-ERR kv: bad key or value size: value of 5 bytes, want 8"},
		{"GET short", "nil"},
		{"DEL short", "-ERR kv: bad key or value size: key of 5 bytes, want 8"},
		{"APPEND 12345678 x", "-ERR kv: bad key or value size: value of 9 bytes, want 8"},
		{"HSET 12345678 a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"HSET 23456789 a 1", "-ERR kv: bad key or value size: value of 12 bytes, want 8"},
		{"INCR 23456789", "-ERR kv: bad key or value size: value of 1 bytes, want 8"},
		{"DEL 12345678", ":1"},
		{"GET 12345678", "nil"},
	} {
		if got := p.do(strings.Fields(tc.command)...); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.command, got, tc.want)
		}
	}
}
