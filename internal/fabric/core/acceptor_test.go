package core

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

// spokenTo is a peer that has sent both letters of its hello.
type spokenTo struct{ conn net.Conn }

func (s spokenTo) Private() []byte               { return nil }
func (s spokenTo) Limit(func(fabric.Token) bool) {}
func (s spokenTo) Accept([]byte, fabric.Rights) (fabric.QueuePair, error) {
	return nil, errors.ErrUnsupported
}
func (s spokenTo) Reject(string) error { return s.conn.Close() }

// crowd is an acceptor and the connections to it. Its handshakes do not time out.
type crowd struct {
	t *testing.T
	a *Acceptor
}

// newCrowd returns an acceptor that closes connections in favour of others after a time.
func newCrowd(t *testing.T, crowded time.Duration) *crowd {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAcceptor(l, func(c net.Conn) (fabric.Request, error) {
		var hello [2]byte
		if _, err := io.ReadFull(c, hello[:]); err != nil {
			return nil, err
		}
		return spokenTo{c}, nil
	}, time.Hour, crowded)
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return &crowd{t, a}
}

// come connects from a host and sends some bytes.
func (c *crowd) come(host, say string) net.Conn {
	c.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	conn, err := d.DialContext(c.t.Context(), "tcp", c.a.listener.Addr().String())
	if err == nil {
		_, err = io.WriteString(conn, say)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// served sends hello on a new connection and waits until Accept returns it.
func (c *crowd) served() {
	c.t.Helper()
	c.come("127.0.0.1", "hi")
	ctx, cancel := context.WithTimeout(c.t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	r, err := c.a.Accept(ctx)
	if err != nil {
		c.t.Fatalf("a peer that says hello: %v", err)
	}
	if err := r.Reject(""); err != nil {
		c.t.Error(err)
	}
}

// open reports whether the acceptor holds a connection. A connection that the acceptor closes
// is closed before the next one is served.
func open(t *testing.T, conn net.Conn) bool {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var read error
	if err := raw.Read(func(fd uintptr) bool {
		_, read = syscall.Read(int(fd), make([]byte, 1)) // does not wait
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return errors.Is(read, syscall.EAGAIN)
}

// Peers that send nothing, or half of a hello, are held while there is room. Peers that send a
// hello replace them, the oldest first.
func TestSilentPeersGiveWay(t *testing.T) {
	for name, say := range map[string]string{"silent": "", "half": "h"} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 0)
			var conns []net.Conn
			for range 500 {
				conns = append(conns, c.come("127.0.0.1", say))
			}
			c.served()
			c.served()
			held := 0
			for i, conn := range conns {
				switch is := open(t, conn); {
				case is:
					held++
				case name == "silent" && held > 0:
					t.Fatalf("connection %d was closed before an older one", i)
				}
			}
			// The two that were served are not held any more.
			if held < backlog-2 || held > backlog {
				t.Errorf("%d of 500 are held, want %d", held, backlog)
			}
		})
	}
}

// A host with many connections only replaces its own.
func TestHostsHaveTheirShare(t *testing.T) {
	c := newCrowd(t, 0)
	few := []net.Conn{c.come("127.0.0.2", ""), c.come("127.0.0.3", "")}
	for range 500 {
		c.come("127.0.0.1", "")
	}
	c.served()
	for i, conn := range few {
		if !open(t, conn) {
			t.Errorf("host %d lost its one connection", i)
		}
	}
}

// More peers come at once than are greeted at a time, before any of them says hello. All of them
// are served.
func TestCrowdWaits(t *testing.T) {
	c := newCrowd(t, time.Hour)
	const peers = 2 * backlog
	var conns []net.Conn
	for range peers {
		conns = append(conns, c.come("127.0.0.1", ""))
	}
	testrun.Until(t, "the acceptor is full", func() bool {
		c.a.mu.Lock()
		defer c.a.mu.Unlock()
		return len(c.a.conns) >= backlog-1
	})
	for _, conn := range conns {
		if _, err := io.WriteString(conn, "hi"); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	for n := range peers {
		r, err := c.a.Accept(ctx)
		if err != nil {
			t.Fatalf("%d of %d peers were served: %v", n, peers, err)
		}
		if err := r.Reject(""); err != nil {
			t.Error(err)
		}
	}
}

// A full acceptor closes silent peers in time for others.
func TestSilentPeersGiveWayInTime(t *testing.T) {
	c := newCrowd(t, time.Millisecond)
	for range 2 * backlog {
		c.come("127.0.0.1", "")
	}
	c.served()
}

// A peer that has begun to send is not closed in favour of silent ones.
func TestSilentPeersGiveWayFirst(t *testing.T) {
	c := newCrowd(t, 0)
	slow := c.come("127.0.0.1", "h")
	for spoke := false; !spoke; { // until the acceptor has read it
		c.a.mu.Lock()
		for _, g := range c.a.conns {
			spoke = g.spoke > 0
		}
		c.a.mu.Unlock()
	}
	for range 500 {
		c.come("127.0.0.1", "")
	}
	c.served()
	if !open(t, slow) {
		t.Error("closed in the middle of its hello")
	}
}

// TestCloseDuringGreeting: Close succeeds although it has closed a connection whose greeting
// was complete and that waits for Accept.
func TestCloseDuringGreeting(t *testing.T) {
	for range 30 { // greet chooses at random between Accept and Close
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		greeted := make(chan struct{})
		a := newAcceptor(l, func(c net.Conn) (fabric.Request, error) {
			close(greeted)
			_, _ = io.Copy(io.Discard, c) // until Close closes c
			return spokenTo{c}, nil
		}, time.Hour, time.Hour)
		conn := (&crowd{t, a}).come("127.0.0.1", "h")
		<-greeted
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}
