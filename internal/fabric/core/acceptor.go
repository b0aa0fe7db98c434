package core

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/fabric"
)

const (
	// backlog is the most connections that are being greeted or wait for Accept. Further ones
	// wait in the kernel's backlog.
	backlog = 256
	// handshakeTime is the most time that a peer may take for its greeting, and for the answer.
	handshakeTime = 10 * time.Second
	// crowdTime is that time while others wait for a place.
	crowdTime = time.Second
)

// Acceptor is a listener over sockets. It greets each connection in a separate goroutine, so
// a silent one delays no other, and passes greeted connections to Accept. It is safe for
// concurrent use.
//
// Silent connections cost their peers nothing, so they must not exclude others. When backlog
// connections are open, each new one waits until another has been greeted and accepted, or has been
// open for crowdTime, and closes that one: one that has sent nothing or, if there is none, one whose
// greeting is incomplete. Among these the oldest connection of the host with the most of them is
// closed. So peers that come all at once, as after a network was cut, do not close each other. A host
// that opens more than backlog silent connections each crowdTime delays the others.
type Acceptor struct {
	listener net.Listener
	set      *Closers // the provider's listeners, if the acceptor itself is one of them
	hello    func(net.Conn) (fabric.Request, error)
	patience time.Duration // handshakeTime
	crowded  time.Duration // crowdTime
	requests chan fabric.Request
	places   chan struct{} // one entry per connection that is being greeted or waits for Accept

	once   sync.Once
	closed chan struct{}
	tasks  sync.WaitGroup

	mu       sync.Mutex
	accepted uint64
	conns    map[net.Conn]*greeting // being greeted
}

// greeting is the state of a connection that is being greeted. Acceptor.mu guards it.
type greeting struct {
	conn   net.Conn
	number uint64 // order of acceptance
	since  time.Time
	host   string
	spoke  int  // 1: the peer has sent something
	gone   bool // closed in favour of another
}

// NewAcceptor starts to accept on l. hello reads the greeting; if it fails, the acceptor
// closes the connection.
func NewAcceptor(l net.Listener, hello func(net.Conn) (fabric.Request, error)) *Acceptor {
	return newAcceptor(l, hello, handshakeTime, crowdTime)
}

func newAcceptor(l net.Listener, hello func(net.Conn) (fabric.Request, error), patience, crowded time.Duration) *Acceptor {
	a := &Acceptor{
		listener: l, hello: hello, patience: patience, crowded: crowded,
		requests: make(chan fabric.Request, backlog), places: make(chan struct{}, backlog),
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
		g := (*greeting)(nil)
		if a.reserve() {
			g = a.track(c)
		}
		if g == nil {
			_ = c.Close()
			return
		}
		a.tasks.Go(func() { a.greet(g) })
	}
}

// reserve takes a place for one more connection. It returns false when the acceptor is closed.
func (a *Acceptor) reserve() bool {
	for {
		var later <-chan time.Time // nil: if all connections wait for Accept, this waits too
		if len(a.places) == backlog {
			if wait := a.makeRoom(); wait > 0 {
				later = time.After(wait)
			}
		}
		select {
		case a.places <- struct{}{}:
			return true
		case <-later:
		case <-a.closed:
			return false
		}
	}
}

// makeRoom closes a connection that is being greeted and has been open for long enough. If there are
// only younger ones, it returns the time until one has been.
func (a *Acceptor) makeRoom() (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	var open []*greeting
	for _, g := range a.conns {
		switch left := a.crowded - now.Sub(g.since); {
		case g.gone:
		case left <= 0:
			open = append(open, g)
		case wait == 0 || left < wait:
			wait = left
		}
	}
	if len(open) == 0 {
		return wait
	}
	hosts := [2]map[string]int{{}, {}} // connections by host: of those that are silent, and of the others
	for _, g := range open {
		hosts[g.spoke][g.host]++
	}
	victim := slices.MinFunc(open, func(g, h *greeting) int {
		return cmp.Or(g.spoke-h.spoke, hosts[h.spoke][h.host]-hosts[g.spoke][g.host], cmp.Compare(g.number, h.number))
	})
	victim.gone = true
	_ = victim.conn.Close()
	return 0
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
	g := &greeting{conn: c, number: a.accepted, since: time.Now(), host: host}
	a.conns[c] = g
	return g
}

func (a *Acceptor) greet(g *greeting) {
	defer func() { <-a.places }()
	c := g.conn
	err := c.SetDeadline(time.Now().Add(a.patience))
	if err == nil {
		err = awaitData(c)
	}
	a.mu.Lock()
	g.spoke = 1
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

// Addr implements fabric.Listener, as do the following methods.
func (a *Acceptor) Addr() string { return a.listener.Addr().String() }

func (a *Acceptor) Accept(ctx context.Context) (fabric.Request, error) {
	select {
	case r := <-a.requests:
		select {
		case <-a.closed:
			_ = r.Reject("the listener closed")
		default:
			return r, nil
		}
	case <-a.closed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("fabric: accept at %s: %w", a.listener.Addr(), fabric.ErrClosed)
}

// Close stops accepting and rejects connections that wait for Accept.
func (a *Acceptor) Close() (err error) {
	a.once.Do(func() {
		if a.set != nil {
			a.set.Remove(a)
		}
		a.mu.Lock()
		close(a.closed)
		for c := range a.conns {
			_ = c.Close()
		}
		a.mu.Unlock()
		err = a.listener.Close()
		a.tasks.Wait()
		for more := true; more; {
			select {
			case r := <-a.requests:
				_ = r.Reject("the listener closed") // its connection may be closed already
			default:
				more = false
			}
		}
	})
	return err
}
