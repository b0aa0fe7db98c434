package core

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/fabric"
)

const (
	// backlog is the most connections that are being greeted or wait for Accept. A further
	// one replaces one that has not completed its greeting.
	backlog = 256
	// HandshakeTime is the most time that a peer may take for its greeting.
	HandshakeTime = 10 * time.Second
)

// Acceptor is a listener over sockets. It greets each connection in a separate goroutine, so
// a silent one delays no other, and passes greeted connections to Accept. It is safe for
// concurrent use.
//
// Silent connections cost their peers nothing, so they must not exclude others. When backlog
// connections are open, each new one closes another: one that has sent nothing or, if there
// is none, one whose greeting is incomplete. Among these the oldest connection of the host
// with the most of them is closed.
type Acceptor struct {
	listener net.Listener
	hello    func(net.Conn) (fabric.Request, error)
	patience time.Duration
	requests chan fabric.Request
	slots    chan struct{}

	once   sync.Once
	closed chan struct{}
	tasks  sync.WaitGroup

	mu       sync.Mutex
	accepted uint64
	conns    map[net.Conn]*greeting // being greeted
}

// greeting is the state of a connection that is being greeted. Acceptor.mu guards it.
type greeting struct {
	number uint64 // order of acceptance
	host   string
	spoke  bool // the peer has sent something
	gone   bool // closed in favour of another
}

// NewAcceptor starts to accept on l. hello reads the greeting; if it fails, the acceptor
// closes the connection.
func NewAcceptor(l net.Listener, hello func(net.Conn) (fabric.Request, error)) *Acceptor {
	return newAcceptor(l, hello, HandshakeTime)
}

func newAcceptor(l net.Listener, hello func(net.Conn) (fabric.Request, error), patience time.Duration) *Acceptor {
	a := &Acceptor{
		listener: l, hello: hello, patience: patience,
		requests: make(chan fabric.Request, backlog), slots: make(chan struct{}, backlog),
		closed: make(chan struct{}), conns: map[net.Conn]*greeting{},
	}
	a.tasks.Go(a.serve)
	return a
}

func (a *Acceptor) serve() {
	for {
		c, err := a.listener.Accept()
		if err != nil {
			select {
			case <-a.closed:
				return
			case <-time.After(10 * time.Millisecond): // for example, no descriptors
			}
			continue
		}
		if !a.slot() {
			_ = c.Close()
			return
		}
		g := a.track(c)
		if g == nil {
			_ = c.Close()
			return
		}
		a.tasks.Go(func() { a.greet(c, g) })
	}
}

// slot makes room for one more connection. It returns false when the acceptor is closed.
func (a *Acceptor) slot() bool {
	select {
	case a.slots <- struct{}{}:
		return true
	default:
	}
	a.makeRoom() // if all connections wait for Accept, this waits too
	select {
	case a.slots <- struct{}{}:
		return true
	case <-a.closed:
		return false
	}
}

// makeRoom closes a connection that is being greeted, if there is one.
func (a *Acceptor) makeRoom() {
	a.mu.Lock()
	defer a.mu.Unlock()
	silent := false
	for _, g := range a.conns {
		silent = silent || !g.spoke && !g.gone
	}
	hosts := map[string]int{}
	for _, g := range a.conns {
		if !g.gone && g.spoke != silent {
			hosts[g.host]++
		}
	}
	var victim net.Conn
	var least *greeting
	for c, g := range a.conns {
		if g.gone || g.spoke == silent {
			continue
		}
		if least == nil || hosts[g.host] > hosts[least.host] || hosts[g.host] == hosts[least.host] && g.number < least.number {
			victim, least = c, g
		}
	}
	if victim != nil {
		least.gone = true
		_ = victim.Close()
	}
}

// track registers a connection. It returns nil when the acceptor is closed.
func (a *Acceptor) track(c net.Conn) *greeting {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		host = "" // a connection from this machine
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.closed:
		return nil
	default:
	}
	a.accepted++
	g := &greeting{number: a.accepted, host: host}
	a.conns[c] = g
	return g
}

func (a *Acceptor) greet(c net.Conn, g *greeting) {
	defer func() { <-a.slots }()
	err := c.SetDeadline(time.Now().Add(a.patience))
	if err == nil {
		err = spoken(c)
	}
	a.mu.Lock()
	g.spoke = true
	a.mu.Unlock()
	var r fabric.Request
	if err == nil {
		r, err = a.hello(c)
	}
	a.mu.Lock()
	gone := g.gone
	delete(a.conns, c)
	a.mu.Unlock()
	if err != nil {
		_ = c.Close() // no greeted peer to report to
		return
	}
	if gone {
		_ = r.Reject("too many connections") // the peer may be gone
		return
	}
	select {
	case a.requests <- r:
	case <-a.closed:
		_ = r.Reject("the listener closed")
	}
}

// Accept returns the next connection request.
func (a *Acceptor) Accept(ctx context.Context) (fabric.Request, error) {
	select {
	case <-a.closed:
		return nil, fmt.Errorf("fabric: accept at %s: %w", a.listener.Addr(), fabric.ErrClosed)
	default:
	}
	select {
	case r := <-a.requests:
		return r, nil
	case <-a.closed:
		return nil, fmt.Errorf("fabric: accept at %s: %w", a.listener.Addr(), fabric.ErrClosed)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops accepting and rejects connections that wait for Accept.
func (a *Acceptor) Close() (err error) {
	a.once.Do(func() {
		a.mu.Lock()
		close(a.closed)
		for c := range a.conns {
			_ = c.Close()
		}
		a.mu.Unlock()
		err = a.listener.Close()
		a.tasks.Wait()
		for {
			select {
			case r := <-a.requests:
				_ = r.Reject("the listener closed") // its connection may be closed already
				continue
			default:
			}
			return
		}
	})
	return err
}
