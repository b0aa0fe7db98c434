package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/fabric"
)

const (
	// backlog is how many connections are greeted or wait for Accept at a time. One more
	// takes the place of one that has not said hello yet.
	backlog = 256
	// HandshakeTime is how long a peer may take to say hello.
	HandshakeTime = 10 * time.Second
)

// Acceptor is a listener over sockets: it greets each connection in a goroutine
// of its own, so that one that says nothing holds up nobody, and hands those
// that said hello to Accept. Safe for concurrent use.
//
// Silent connections cost their peers nothing, so they must not keep others out. When
// backlog connections are open, each new one closes another: one that has sent nothing,
// or, if there is none, one whose hello is not complete. Among these it is the oldest
// connection of the host that has the most of them.
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

// greeting is a connection that is being greeted. Guarded by Acceptor.mu.
type greeting struct {
	number uint64 // in the order of acceptance
	host   string
	spoke  bool // the peer has sent something
	gone   bool // closed to make room for another
}

// NewAcceptor starts to accept on l. hello reads the greeting; the acceptor
// closes the connection if it fails.
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
			case <-time.After(10 * time.Millisecond): // out of descriptors, say
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
	a.makeRoom() // if all wait for Accept, this waits for that
	select {
	case a.slots <- struct{}{}:
		return true
	case <-a.closed:
		return false
	}
}

// makeRoom closes a connection that is being greeted, if there is any.
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

// track returns nil when the acceptor is closed.
func (a *Acceptor) track(c net.Conn) *greeting {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		host = "" // of this machine
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
		_ = c.Close() // a stranger; there is nobody to tell
		return
	}
	if gone {
		_ = r.Reject("others came") // too late to tell
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

// Close stops accepting and refuses those who wait.
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
				err = errors.Join(err, r.Reject("the listener closed"))
				continue
			default:
			}
			return
		}
	})
	return err
}
