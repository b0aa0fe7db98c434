package resp

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/race"
)

// A client may send a pipeline of any length before it reads, as long as the requests fit
// the budget.
func TestPipelineBeforeReading(t *testing.T) {
	commands := 500_000
	if race.Enabled || testing.Short() {
		commands = 200_000 // of which the replies still fit no socket
	}
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
			// The last command has large parts, which come in many pieces.
			p.send(strings.Repeat(encode("GET", "a"), commands) + encode("ECHO", strings.Repeat("w", 1<<20)))
			p.expect(strings.Repeat("$100\r\n"+strings.Repeat("v", 100)+"\r\n", 1000), commands/1000)
			if got := p.reply(); got != `"`+strings.Repeat("w", 1<<20)+`"` {
				t.Errorf("the last reply has %d bytes", len(got))
			}
			if got := p.do("PING"); got != "+PONG" {
				t.Error(got)
			}
			eventually(t, "nothing is held any more", func() bool { return s.Metrics().RequestBytes < 1<<20 })
		})
	}
}

// expect reads so many times these replies.
func (p *peer) expect(replies string, times int) {
	p.t.Helper()
	buf := make([]byte, len(replies))
	for i := range times {
		if _, err := io.ReadFull(p.in, buf); err != nil || !bytes.Equal(buf, []byte(replies)) {
			p.t.Fatalf("replies %d of %d: %v", i, times, err)
		}
	}
}

// What is read ahead of clients that do not read comes out of the budget for requests, of
// which it leaves half to others; they are served when they read.
func TestReadingAheadIsBounded(t *testing.T) {
	const most, clients, commands = 2 << 20, 3, 400_000
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
			eventually(t, "the budget for reading ahead is used up", func() bool { return bounded() > most/2-aheadChunk })
			if got := other.do("SET", "b", strings.Repeat("v", maxLine)); got != "+OK" {
				t.Error(got)
			}
			for _, p := range peers {
				p.expect(strings.Repeat("$500\r\n"+strings.Repeat("v", 500)+"\r\n", 100), commands/100)
				bounded()
			}
			for range peers {
				if err := <-sent; err != nil {
					t.Error(err)
				}
			}
			eventually(t, "nothing is held any more", func() bool { return s.Metrics().RequestBytes < most/4 })
		})
	}
}

// A server that shuts down answers what it has read ahead.
func TestShutdownAnswersWhatWasReadAhead(t *testing.T) {
	const commands, ahead = 100_000, 1 << 20
	s, st, addr, served := serving(t)
	p := dial(t, addr)
	if got := p.do("SET", "a", strings.Repeat("v", 1000)); got != "+OK" {
		t.Fatal(got)
	}
	p.send(strings.Repeat(encode("GET", "a"), commands) + encode("SET", "b", "1"))
	eventually(t, "much is read ahead", func() bool { return s.Metrics().RequestBytes > ahead })
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	<-s.done
	n, err := io.Copy(io.Discard, p.in)
	if err != nil || n < int64(ahead/len(encode("GET", "a"))*1000) {
		t.Errorf("%d bytes of replies, %v", n, err)
	}
	for _, err := range []error{<-ended, <-served, st.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}
