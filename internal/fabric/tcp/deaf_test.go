package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

// listening returns a provider that listens, until the test ends.
func listening(t *testing.T, opts Options) (*Provider, fabric.Listener) {
	t.Helper()
	p := Open(opts)
	t.Cleanup(func() { _ = p.Close() })
	l, err := p.Listen("", 4)
	if err != nil {
		t.Fatal(err)
	}
	return p, l
}

// stranger returns a socket that has greeted p's listener, and its queue pair there.
func stranger(t *testing.T, l fabric.Listener) (net.Conn, *queuePair) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write(append([]byte(magic), 0)); err != nil {
		t.Fatal(err)
	}
	request, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q, err := request.Accept(nil, fabric.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 2)); err != nil { // the listener's greeting
		t.Fatal(err)
	}
	return c, q.(*queuePair)
}

// askFor imports a region over a stranger's socket, and sends that many requests for its first bytes.
func askFor(t *testing.T, c net.Conn, region fabric.Region, requests int) {
	t.Helper()
	token := region.Token()
	ask := append(appendHeader(nil, &frame{kind: kindImport, length: tokenSize, imm: 1}), token[:]...)
	if _, err := c.Write(ask); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, headerSize)
	if _, err := io.ReadFull(c, answer); err != nil {
		t.Fatal(err)
	}
	var lent frame
	if n, err := decode(answer, &lent); n == 0 || err != nil {
		t.Fatal(err)
	}
	read := appendHeader(nil, &frame{kind: kindRead, handle: lent.handle, length: maxFragment})
	if _, err := c.Write(bytes.Repeat(read, requests)); err != nil {
		t.Error(err)
	}
}

// TestDeafPeersTogether: what waits for all peers that do not read is bounded, too.
func TestDeafPeersTogether(t *testing.T) {
	p, l := listening(t, Options{Silence: time.Hour})
	p.most = 2 * window
	region, err := p.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	const peers = 8
	var all []*queuePair
	for range peers {
		c, q := stranger(t, l)
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		askFor(t, c, region, 3*window/2/maxFragment)
		all = append(all, q)
	}
	ended := func() (n int) {
		for _, q := range all {
			if q.Err() != nil {
				n++
			}
		}
		return n
	}
	testrun.Until(t, "peers are disconnected, and few bytes wait", func() bool {
		return ended() > 0 && p.waiting.Load() <= p.most+2*window
	})
	if p.Malformed() != 0 {
		t.Errorf("they kept to the protocol, and %d did not", p.Malformed())
	}
	for _, q := range all {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := p.waiting.Load(); n != 0 {
		t.Errorf("%d bytes wait for nobody", n)
	}
}

// TestDeafPeer sends as many requests as a peer may have pending, and reads no answer. It
// delays no other peer, the answers that wait for it are bounded, and it is soon disconnected.
func TestDeafPeer(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for silences")
	p, l := listening(t, Options{})
	region, err := p.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	c, q := stranger(t, l)
	askFor(t, c, region, window/maxFragment)

	// Another peer is served meanwhile.
	client := Open(Options{})
	t.Cleanup(func() { _ = client.Close() })
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			_, _ = r.Accept(nil, fabric.ReadWrite)
		}
	}()
	good, err := client.Dial(t.Context(), l.Addr(), nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := good.Import(t.Context(), region.Token())
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for q.Err() == nil {
		if err := errors.Join(good.Read(make([]byte, 64), remote, 0, 1), good.Submit()); err != nil {
			t.Fatal(err)
		}
		var done [1]fabric.Completion
		for good.Poll(done[:]) == 0 {
			if err := good.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if done[0].Err != nil {
			t.Fatal(done[0].Err)
		}
		served++
		q.out.mu.Lock()
		waiting := cap(q.out.buf)
		q.out.mu.Unlock()
		if waiting > 4*window {
			t.Fatalf("%d bytes wait for a peer that does not read", waiting)
		}
	}
	if !errors.Is(q.Err(), fabric.ErrDisconnected) || served < 10 {
		t.Errorf("ended with %v, while another one was served %d times", q.Err(), served)
	}
	if p.Malformed() != 0 {
		t.Errorf("it kept to the protocol, and %d did not", p.Malformed())
	}
}
