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
	// backlog is how many connections are greeted or wait for Accept at a time;
	// further ones wait in the kernel.
	backlog = 128
	// HandshakeTime is how long a peer may take to say hello.
	HandshakeTime = 10 * time.Second
)

// Acceptor is a listener over sockets: it greets each connection in a goroutine
// of its own, so that one that says nothing holds up nobody, and hands those
// that said hello to Accept. Safe for concurrent use.
type Acceptor struct {
	listener net.Listener
	hello    func(net.Conn) (fabric.Request, error)
	requests chan fabric.Request
	slots    chan struct{}

	once   sync.Once
	closed chan struct{}
	tasks  sync.WaitGroup
	mu     sync.Mutex
	conns  map[net.Conn]struct{} // being greeted
}

// NewAcceptor starts to accept on l. hello reads the greeting; the acceptor
// closes the connection if it fails.
func NewAcceptor(l net.Listener, hello func(net.Conn) (fabric.Request, error)) *Acceptor {
	a := &Acceptor{
		listener: l, hello: hello,
		requests: make(chan fabric.Request, backlog), slots: make(chan struct{}, backlog),
		closed: make(chan struct{}), conns: map[net.Conn]struct{}{},
	}
	a.tasks.Go(a.serve)
	return a
}

func (a *Acceptor) serve() {
	for {
		select {
		case a.slots <- struct{}{}:
		case <-a.closed:
			return
		}
		c, err := a.listener.Accept()
		if err != nil {
			<-a.slots
			select {
			case <-a.closed:
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors, say
			}
			continue
		}
		if !a.track(c) {
			_ = c.Close()
			return
		}
		a.tasks.Go(func() { a.greet(c) })
	}
}

func (a *Acceptor) track(c net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.closed:
		return false
	default:
		a.conns[c] = struct{}{}
		return true
	}
}

func (a *Acceptor) greet(c net.Conn) {
	defer func() { <-a.slots }()
	err := c.SetDeadline(time.Now().Add(HandshakeTime))
	var r fabric.Request
	if err == nil {
		r, err = a.hello(c)
	}
	a.mu.Lock()
	delete(a.conns, c)
	a.mu.Unlock()
	if err != nil {
		_ = c.Close() // a stranger; there is nobody to tell
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
