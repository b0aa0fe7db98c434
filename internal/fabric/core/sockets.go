package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/fabric"
)

// Sockets is the part of a provider that is the same over all kinds of sockets. The provider
// supplies the greetings. It is safe for concurrent use.
type Sockets struct {
	Transport string  // the provider's name
	Network   string  // package net's name for the kind of socket
	Listeners Closers // and the requests that are not answered yet
	Pairs     Closers
	malformed atomic.Uint64
}

// Name implements fabric.Provider.
func (s *Sockets) Name() string { return s.Transport }

// Malformed returns the number of connections that ended because the peer violated the protocol.
func (s *Sockets) Malformed() uint64 { return s.malformed.Load() }

// CountMalformed counts one such connection.
func (s *Sockets) CountMalformed() { s.malformed.Add(1) }

// Connect implements Dial. greet sends the greeting and returns the queue pair; if it fails,
// Connect closes the connection.
func (s *Sockets) Connect(ctx context.Context, addr string, private []byte, depth int,
	greet func(net.Conn) (fabric.QueuePair, error),
) (q fabric.QueuePair, err error) {
	var c net.Conn
	if err = errors.Join(CheckPrivate(private), CheckDepth(depth)); err == nil {
		c, err = new(net.Dialer).DialContext(ctx, s.Network, addr)
	}
	if err == nil {
		if q, err = greet(c); err != nil {
			_ = c.Close() // may be closed already
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s dial %q: %w", s.Transport, addr, err)
	}
	return q, nil
}

// Serve implements Listen. hello reads the greeting of a connection, for NewAcceptor.
func (s *Sockets) Serve(addr string, depth int, hello func(net.Conn) (fabric.Request, error)) (fabric.Listener, error) {
	var l net.Listener
	err := CheckDepth(depth)
	if err == nil {
		l, err = net.Listen(s.Network, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s listen %q: %w", s.Transport, addr, err)
	}
	a := NewAcceptor(l, hello)
	a.set = &s.Listeners
	if !a.set.Add(a) {
		return nil, errors.Join(fmt.Errorf("%s listen %q: %w", s.Transport, addr, fabric.ErrClosed), a.Close())
	}
	return a, nil
}

// Within calls f, which reads or writes with a deadline. The end of ctx moves the deadline
// into the past, for good; Within then returns ctx's error.
func Within(ctx context.Context, setDeadline func(time.Time) error, f func() error) error {
	moved := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(moved)
		_ = setDeadline(time.Unix(1, 0))
	})
	err := f()
	if !stop() {
		<-moved // the caller may set another one
		return context.Cause(ctx)
	}
	return err
}

// Terms are what a peer may do to the regions of the side that has accepted it.
type Terms struct {
	Rights fabric.Rights
	Limit  func(fabric.Token) bool // reports whether a region is lent; nil: all are
}

// Lends reports whether the peer may import a region.
func (t *Terms) Lends(token fabric.Token) bool { return t.Limit == nil || t.Limit(token) }

// request is a peer that has sent its greeting. It is answered once, at the latest when the
// provider closes. It is safe for concurrent use.
type request struct {
	sockets  *Sockets
	conn     net.Conn
	private  []byte
	accept   func(private []byte, terms Terms) (fabric.QueuePair, error)
	limit    func(fabric.Token) bool
	reject   func(reason string)
	answered atomic.Bool
	// accepting is set until conn belongs to the queue pair.
	accepting atomic.Bool
}

// NewRequest returns the request of the peer of conn, which has sent private. accept and reject
// send the answer; one of them is called, once. If accept fails, and after reject, conn is
// closed. A request that is not answered is rejected when the provider closes.
func (s *Sockets) NewRequest(conn net.Conn, private []byte,
	accept func(private []byte, terms Terms) (fabric.QueuePair, error), reject func(reason string),
) fabric.Request {
	r := &request{sockets: s, conn: conn, private: private, accept: accept, reject: reject}
	if !s.Listeners.Add(r) {
		_ = r.Close() // the peer may be gone
	}
	return r
}

// Private implements fabric.Request, as do the following methods.
func (r *request) Private() []byte { return r.private }

func (r *request) Limit(lends func(fabric.Token) bool) { r.limit = lends }

func (r *request) Accept(private []byte, rights fabric.Rights) (fabric.QueuePair, error) {
	if err := CheckPrivate(private); err != nil {
		return nil, err
	}
	r.accepting.Store(true)
	if !r.begin() {
		r.accepting.Store(false)
		return nil, fmt.Errorf("%s accept: the request was answered before", r.sockets.Transport)
	}
	q, err := r.accept(private, Terms{Rights: rights, Limit: r.limit})
	if err != nil {
		_ = r.conn.Close() // may be closed already
		return nil, fmt.Errorf("%s accept at %v from %v: %w", r.sockets.Transport, r.conn.LocalAddr(), r.conn.RemoteAddr(), err)
	}
	r.accepting.Store(false)
	return q, nil
}

func (r *request) Reject(reason string) error {
	if !r.begin() {
		if r.accepting.Load() {
			_ = r.conn.Close() // Accept may have closed it
		}
		return nil
	}
	r.reject(reason)
	return r.conn.Close()
}

// Close rejects a request that is not answered.
func (r *request) Close() error {
	_ = r.Reject("the listener closed") // the connection may be closed already
	return nil
}

// begin returns false if the request was answered before. It gives the answer its own
// deadline; if that fails, so does the answer.
func (r *request) begin() bool {
	if r.answered.Swap(true) {
		return false
	}
	r.sockets.Listeners.Remove(r)
	_ = r.conn.SetDeadline(time.Now().Add(handshakeTime))
	return true
}
