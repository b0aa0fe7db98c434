//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

// backlog is the most connections that the connection manager holds until their requests are
// read.
const backlog = 128

// listener accepts greetings over TCP at its address, and for each accepted greeting one RDMA
// connection with the nonce of the answer.
type listener struct {
	*core.Acceptor
	provider *provider
	depth    int

	events *cmEvents
	id     *C.struct_rdma_cm_id
	port   uint16
	task   sync.WaitGroup
	once   sync.Once

	ctx    context.Context // ends when the listener is closed
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	closed   bool
	making   sync.WaitGroup                           // connections that still use events
	expected map[wire.Nonce]chan *C.struct_rdma_cm_id // capacity 1
}

func listen(p *provider, addr string, depth int) (_ *listener, err error) {
	if err := core.CheckDepth(depth); err != nil {
		return nil, err
	}
	if addr == "" {
		ip, err := deviceAddress()
		if err != nil {
			return nil, err
		}
		addr = netip.AddrPortFrom(ip, 0).String()
	}
	s, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &listener{provider: p, depth: depth, expected: map[wire.Nonce]chan *C.struct_rdma_cm_id{}}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if err := l.bind(s.Addr().(*net.TCPAddr).AddrPort().Addr()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	l.task.Go(l.serve)
	l.Acceptor = core.NewAcceptor(s, l.hello)
	if !p.Listeners.Add(l) {
		return nil, errors.Join(fabric.ErrClosed, l.Close())
	}
	return l, nil
}

// bind makes the connection manager listen on a free port.
func (l *listener) bind(ip netip.Addr) (err error) {
	if l.events, err = newCMEvents(); err != nil {
		return err
	}
	if n, err := C.rdma_create_id(l.events.channel, &l.id, nil, C.RDMA_PS_TCP); n != 0 {
		return errors.Join(fmt.Errorf("connection manager: %w", err), l.events.destroy())
	}
	n, err := C.rdma_bind_addr(l.id, sockaddr(netip.AddrPortFrom(ip, 0)))
	if n == 0 && l.id.verbs == nil && !ip.IsUnspecified() {
		n, err = -1, errNoDevice
	}
	if n == 0 {
		n, err = C.rdma_listen(l.id, backlog)
	}
	if n != 0 {
		C.rdma_destroy_id(l.id)
		return errors.Join(fmt.Errorf("connection manager: listen at %v: %w", ip, err), l.events.destroy())
	}
	be := C.rdma_get_src_port(l.id)
	l.port = uint16(be)<<8 | uint16(be)>>8
	return nil
}

// serveAgain is the pause after an event that could not be taken.
const serveAgain = 100 * time.Millisecond

// serve passes RDMA connections to the requests that expect them.
func (l *listener) serve() {
	for {
		event, err := l.events.next()
		if err != nil { // closed, or this process lacks resources
			if !clock.Sleep(l.ctx, serveAgain) {
				return
			}
			continue
		}
		if event.kind != C.RDMA_CM_EVENT_CONNECT_REQUEST {
			continue // the connection ended before it was passed on
		}
		var nonce wire.Nonce
		copy(nonce[:], event.private)
		l.mu.Lock()
		expecting := l.expected[nonce]
		delete(l.expected, nonce)
		l.mu.Unlock()
		if expecting == nil {
			l.provider.CountMalformed()
			refuse(event.id)
			continue
		}
		expecting <- event.id
	}
}

func refuse(id *C.struct_rdma_cm_id) {
	C.rdma_reject(id, nil, 0) // no greeted peer to report to
	C.rdma_destroy_id(id)
}

// expect returns a new nonce and the channel for the connection that shows it. The caller calls
// making.Done when it has the connection.
func (l *listener) expect() (nonce wire.Nonce, c chan *C.struct_rdma_cm_id, err error) {
	_, _ = rand.Read(nonce[:]) // never fails: crypto/rand ends the process instead
	c = make(chan *C.struct_rdma_cm_id, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nonce, nil, fabric.ErrClosed
	}
	l.making.Add(1)
	l.expected[nonce] = c
	return nonce, c, nil
}

// dismiss drops an expectation, and the connection if it has arrived.
func (l *listener) dismiss(nonce wire.Nonce, c chan *C.struct_rdma_cm_id) {
	l.mu.Lock()
	_, open := l.expected[nonce]
	delete(l.expected, nonce)
	l.mu.Unlock()
	if !open {
		refuse(<-c) // serve removed it from the table and sends it
	}
}

func (l *listener) Close() (err error) {
	l.once.Do(func() {
		l.provider.Listeners.Remove(l)
		err = l.Acceptor.Close()
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.cancel(fabric.ErrClosed)
		l.making.Wait()
		_ = l.events.file.Close() // ends serve
		l.task.Wait()
		C.rdma_destroy_id(l.id)
		err = errors.Join(err, l.events.destroy())
	})
	return err
}

func (l *listener) hello(c net.Conn) (fabric.Request, error) {
	var b [wire.HelloSize]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return nil, err
	}
	peer, private, err := wire.DecodeHello(b[:])
	if err != nil {
		l.provider.CountMalformed()
		return nil, err
	}
	r := &request{listener: l, conn: c.(*net.TCPConn), peer: peer, private: private}
	return l.provider.NewRequest(c, private, r.accept, func(reason string) {
		_ = r.answer(wire.Verdict{Text: []byte(reason)}) // the peer may be gone
	}), nil
}

// request is a peer that has sent its greeting.
type request struct {
	listener *listener
	conn     *net.TCPConn
	peer     wire.Peer
	private  []byte
}

func (r *request) accept(private []byte, terms core.Terms) (fabric.QueuePair, error) {
	l := r.listener
	nonce, c, err := l.expect()
	if err != nil {
		return nil, err
	}
	// The dialer sends Ready when its end is established. If it disconnects
	// instead, this end is closed.
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	ready := make(chan error, 1)
	go func() {
		err := awaitReady(r.conn)
		if err != nil {
			err = fmt.Errorf("%w: %w", fabric.ErrDisconnected, err)
			cancel(err)
		}
		ready <- err
	}()
	if err = r.answer(wire.Verdict{Accepted: true, Port: l.port, Nonce: nonce, Text: private}); err != nil {
		cancel(err)
	}
	e, err := r.connection(ctx, nonce, c, terms.Rights)
	l.making.Done()
	if err != nil {
		_ = r.conn.Close() // ends the goroutine
		return nil, errors.Join(err, <-ready)
	}
	if err := <-ready; err != nil {
		return nil, errors.Join(err, e.destroy())
	}
	return start(l.provider, r.conn, e, r.private, l.depth, terms)
}

// connection waits for the dialer's RDMA connection and accepts it.
func (r *request) connection(ctx context.Context, nonce wire.Nonce, c chan *C.struct_rdma_cm_id, rights fabric.Rights) (*endpoint, error) {
	l := r.listener
	select {
	case id := <-c:
		return accept(ctx, l.provider, domainID{peer: r.peer, rights: rights, device: id.verbs}, id, l.depth)
	case <-ctx.Done():
		l.dismiss(nonce, c)
		return nil, context.Cause(ctx)
	}
}

func (r *request) answer(v wire.Verdict) error {
	_, err := r.conn.Write(v.Append(nil))
	return err
}
