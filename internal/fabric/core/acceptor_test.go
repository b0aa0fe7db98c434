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

func (s spokenTo) Private() []byte                         { return nil }
func (s spokenTo) Accept([]byte) (fabric.QueuePair, error) { return nil, errors.ErrUnsupported }
func (s spokenTo) Reject(string) error                     { return s.conn.Close() }

// crowd is an acceptor whose timeouts never expire, and the connections to it.
type crowd struct {
	t *testing.T
	a *Acceptor
}

func newCrowd(t *testing.T) *crowd {
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
	}, time.Hour)
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
			c := newCrowd(t)
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
	c := newCrowd(t)
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

// A peer that has begun to send is not closed in favour of silent ones.
func TestSilentPeersGiveWayFirst(t *testing.T) {
	c := newCrowd(t)
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
		}, time.Hour)
		conn := (&crowd{t, a}).come("127.0.0.1", "h")
		<-greeted
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}
