package resp

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// TestPipelineBeforeReading: a client may send a pipeline of any length before it reads, as
// long as the requests fit the budget.
func TestPipelineBeforeReading(t *testing.T) {
	commands := testrun.Raced(testrun.Scale(200_000, 500_000, 500_000), 200_000) // the replies exceed a socket's buffers
	server, config := certificate(t)
	config.ServerName = "127.0.0.1"
	for name, tc := range map[string]struct {
		loops     int
		encrypted bool
	}{"goroutine": {-1, false}, "loop": {1, false}, "TLS": {-1, true}} {
		t.Run(name, func(t *testing.T) {
			ln := listen(t)
			addr := ln.Addr().String()
			if tc.encrypted {
				ln = tls.NewListener(ln, server)
			}
			s := startOn(t, ln, Options{Loops: tc.loops})
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if tc.encrypted {
				conn = tls.Client(conn, config)
			}
			p := dialed(t, conn)
			if got := p.do("SET", "a", strings.Repeat("v", 100)); got != "+OK" {
				t.Fatal(got)
			}
			// The last command has large arguments, which arrive in many pieces.
			p.send(strings.Repeat(encode("GET", "a"), commands) + encode("ECHO", strings.Repeat("w", 1<<20)))
			p.expect(strings.Repeat("$100\r\n"+strings.Repeat("v", 100)+"\r\n", 1000), commands/1000)
			if got := p.reply(); got != `"`+strings.Repeat("w", 1<<20)+`"` {
				t.Errorf("the last reply has %d bytes", len(got))
			}
			if got := p.do("PING"); got != "+PONG" {
				t.Error(got)
			}
			testrun.Until(t, "nothing is held any more", func() bool { return s.Metrics().RequestBytes < 1<<20 })
		})
	}
}

// expect reads the replies the given number of times.
func (p *peer) expect(replies string, times int) {
	p.t.Helper()
	buf := make([]byte, len(replies))
	for i := range times {
		if _, err := io.ReadFull(p.in, buf); err != nil || !bytes.Equal(buf, []byte(replies)) {
			p.t.Fatalf("replies %d of %d: %v", i, times, err)
		}
	}
}

// TestReadingAheadIsBounded: bytes read ahead are charged to the budget for requests, and half
// of it is left for others. The clients are served when they read.
func TestReadingAheadIsBounded(t *testing.T) {
	const most, clients = 2 << 20, 3
	commands := testrun.Raced(400_000, 100_000)
	for name, loops := range map[string]int{"goroutine": -1, "loop": 1} {
		t.Run(name, func(t *testing.T) {
			s, addr := start(t, inMemory(), Options{Loops: loops, MaxBulk: maxLine, MaxRequest: 1 << 20, MaxBuffers: most})
			other := dial(t, addr)
			if got := other.do("SET", "a", strings.Repeat("v", 500)); got != "+OK" {
				t.Fatal(got)
			}
			var peers []*peer
			sent := make(chan error, clients)
			for range clients {
				p := dial(t, addr)
				peers = append(peers, p)
				go func() {
					_, err := io.WriteString(p.conn, strings.Repeat(encode("GET", "a"), commands))
					sent <- err
				}()
			}
			bounded := func() int64 {
				held := s.Metrics().RequestBytes
				if held > most/2+clients*largeBatch {
					t.Fatalf("%d bytes of requests are held, half of %d are for reading ahead", held, most)
				}
				return held
			}
			testrun.Until(t, "the budget for reading ahead is used up", func() bool { return bounded() > most/2-aheadChunk })
			if got := other.do("SET", "b", strings.Repeat("v", maxLine)); got != "+OK" {
				t.Error(got)
			}
			for _, p := range peers {
				p.expect(strings.Repeat("$500\r\n"+strings.Repeat("v", 500)+"\r\n", 100), commands/100)
				bounded()
			}
			for range peers {
				if err := testrun.Receive(t, "a client has sent all", sent); err != nil {
					t.Error(err)
				}
			}
			testrun.Until(t, "nothing is held any more", func() bool { return s.Metrics().RequestBytes < most/4 })
		})
	}
}

// TestShutdownAnswersWhatWasReadAhead: a server that shuts down answers the commands read
// ahead.
func TestShutdownAnswersWhatWasReadAhead(t *testing.T) {
	const commands, ahead = 100_000, 1 << 20
	s, st, addr, served := serving(t)
	p := dial(t, addr)
	if got := p.do("SET", "a", strings.Repeat("v", 1000)); got != "+OK" {
		t.Fatal(got)
	}
	p.send(strings.Repeat(encode("GET", "a"), commands) + encode("SET", "b", "1"))
	testrun.Until(t, "much is read ahead", func() bool { return s.Metrics().RequestBytes > ahead })
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	testrun.Receive(t, "the server shuts down", s.done)
	n, err := io.Copy(io.Discard, p.in)
	if err != nil || n < int64(ahead/len(encode("GET", "a"))*1000) {
		t.Errorf("%d bytes of replies, %v", n, err)
	}
	for _, err := range []error{testrun.Receive(t, "Shutdown ends", ended), testrun.Receive(t, "Serve ends", served), st.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestIdleAfterReadingAhead: after a client has read its replies, it is an idle client like
// any other, and its budget for reading ahead is free.
func TestIdleAfterReadingAhead(t *testing.T) {
	const size = 7 << 20
	for name, loops := range map[string]int{"goroutine": -1, "loop": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()                  // the test mostly waits
			const idle = 10 * time.Second // a busy machine reads the replies in less
			s, addr := start(t, kv.Options{Device: device.NewMemory(), Memory: 256 << 20, Records: 1 << 10}, Options{Loops: loops, IdleTimeout: idle})
			writer := s.store.NewSession()
			if err := errors.Join(writer.Upsert(storedKey(0, []byte("a")), storedString([]byte(strings.Repeat("v", size)))), writer.Close()); err != nil {
				t.Fatal(err)
			}
			p := dial(t, addr)
			p.send(encode("GET", "a") + encode("GET", "a"))
			testrun.Until(t, "the connection is read ahead", func() bool { return s.Metrics().RequestBytes == aheadChunk })
			for range 2 {
				if got := p.reply(); got != strconv.Quote(strings.Repeat("v", size)) {
					t.Fatalf("a reply has %d bytes", len(got))
				}
			}
			p.expectEnd()
			testrun.Until(t, "nothing is held any more", func() bool { return s.Metrics().RequestBytes == 0 })
		})
	}
}

// TestReadingAheadWaitsForRoom: when one client uses the whole budget for reading ahead, the
// next one waits.
func TestReadingAheadWaitsForRoom(t *testing.T) {
	const most, commands = 2 << 20, 400_000
	s, addr := start(t, inMemory(), Options{MaxBulk: maxLine, MaxRequest: 1 << 20, MaxBuffers: most})
	first, second := dial(t, addr), dial(t, addr)
	if got := first.do("SET", "a", strings.Repeat("v", 500)); got != "+OK" {
		t.Fatal(got)
	}
	send := func(p *peer) (sent chan error) {
		sent = make(chan error, 1)
		go func() {
			_, err := io.WriteString(p.conn, strings.Repeat(encode("GET", "a"), commands))
			sent <- err
		}()
		return sent
	}
	all := func() bool { return s.Metrics().RequestBytes > most/2-aheadChunk }
	sent := [2]chan error{send(first)}
	testrun.Until(t, "the first client has the whole budget", all)
	sent[1] = send(second)
	testrun.Until(t, "both have been waited for", func() bool {
		waiting := 0
		for _, c := range s.all() {
			if since := c.output.since.Load(); since != 0 && time.Since(time.Unix(0, since)) > 10*aheadAfter {
				waiting++
			}
		}
		return waiting == 2
	})
	if err := first.conn.Close(); err != nil {
		t.Error(err)
	}
	if err := testrun.Receive(t, "the first client ends", sent[0]); err == nil {
		t.Error("the first client has sent everything")
	}
	testrun.Until(t, "the second client has the whole budget", func() bool { return s.Metrics().Clients == 1 && all() })
	second.expect(strings.Repeat("$500\r\n"+strings.Repeat("v", 500)+"\r\n", 100), commands/100)
	if err := testrun.Receive(t, "the second client has sent all", sent[1]); err != nil {
		t.Error(err)
	}
	testrun.Until(t, "nothing is held any more", func() bool { return s.Metrics().RequestBytes < most/4 })
}

// TestReadingAheadLetsGo: pieces that have been consumed are freed while later ones are in
// use.
func TestReadingAheadLetsGo(t *testing.T) {
	client, server := net.Pipe()
	in := newInput(server, new(Options), &budget{most: 1 << 20})
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 3*aheadChunk))
		sent <- errors.Join(err, client.Close())
	}()
	for in.roomAhead() && in.readAhead() {
	}
	if err := testrun.Receive(t, "all is sent", sent); err != nil || len(in.ahead) != 3 {
		t.Fatal(len(in.ahead), err)
	}
	first := weak.Make(&in.ahead[0][0])
	if n, err := in.read(make([]byte, aheadChunk)); n != aheadChunk || err != nil {
		t.Fatal(n, err)
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the first piece is still in memory")
	}
	if got := in.large.used.Load(); got != 2*aheadChunk || len(in.ahead) != 2 {
		t.Errorf("%d bytes are charged for %d pieces", got, len(in.ahead))
	}
	in.release()
	if got := in.large.used.Load(); got != 0 {
		t.Errorf("%d bytes are charged for nothing", got)
	}
}
