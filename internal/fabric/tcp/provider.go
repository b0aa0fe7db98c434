// Package tcp is the fabric between any two hosts that reach each other by TCP:
// one connection for each queue pair, frames as frame.go lists them.
//
// TCP has no one-sided operations. The provider on the passive host carries them
// out, in the goroutine that reads the connection; the owner of the passive
// queue pair takes no part. Requests of one Submit leave in one write, and so do
// the replies to what arrived in one read.
//
// With TLS, both sides speak nothing else. A peer that breaks the protocol is cut
// off and counted. One that is not heard of for Options.Silence is given up, be its host
// gone or its process stopped (pulse.go). Tokens, lengths and offsets are checked here as
// well as there.
package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// Name is the provider's name.
const Name = "tcp"

// Provider is the fabric over TCP.
type Provider struct {
	tls       *tls.Config // nil: none
	silence   time.Duration
	pulse     pulse
	regions   *core.Registry
	listeners core.Closers
	pairs     core.Closers
	malformed atomic.Uint64
}

// Options are what a provider may be given. The zero Options will do.
type Options struct {
	// TLS, if set, secures all connections: its certificates are those of the
	// listeners, and of dialers where listeners ask for one; a dialer expects the name
	// or address that it dials where the config has no ServerName. Default: no TLS.
	TLS *tls.Config
	// Silence is how long a connected peer may be silent before it is given up:
	// its process does not answer, or its host is out of reach. Both ends have one of
	// their own. Default: core.Silence, 3 s.
	Silence time.Duration
}

// Open returns a provider of its own.
func Open() *Provider { return OpenWith(Options{}) }

// OpenWith is Open with options.
func OpenWith(opts Options) *Provider {
	if opts.TLS != nil {
		opts.TLS = opts.TLS.Clone()
		opts.TLS.DynamicRecordSizingDisabled = true // batches are large, or in a hurry
	}
	if opts.Silence <= 0 {
		opts.Silence = core.Silence
	}
	return &Provider{tls: opts.TLS, silence: opts.Silence, pulse: newPulse(), regions: core.NewRegistry()}
}

// Malformed is how many connections were cut for breaking the protocol.
func (p *Provider) Malformed() uint64 { return p.malformed.Load() }

func (p *Provider) Name() string { return Name }

func (p *Provider) Alloc(size int) (fabric.Region, error) {
	r, err := p.regions.Alloc(size)
	if err != nil {
		return nil, err // not r: a nil *core.Region would be a non-nil Region
	}
	return r, nil
}

// Listen listens at a host and port, or, if addr is empty, at a free port of the
// loopback interface.
func (p *Provider) Listen(addr string, depth int) (fabric.Listener, error) {
	if err := core.CheckDepth(depth); err != nil {
		return nil, fmt.Errorf("tcp listen %q: %w", addr, err)
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	s, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	l := &listener{provider: p, depth: depth, addr: s.Addr().String()}
	l.acceptor = core.NewAcceptor(s, l.hello)
	if !p.listeners.Add(l) {
		return nil, errors.Join(fmt.Errorf("tcp listen %q: %w", addr, fabric.ErrClosed), l.Close())
	}
	return l, nil
}

func (p *Provider) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	q, err := p.dial(ctx, addr, private, depth)
	if err != nil {
		return nil, fmt.Errorf("tcp dial %q: %w", addr, err)
	}
	return q, nil
}

func (p *Provider) dial(ctx context.Context, addr string, private []byte, depth int) (*queuePair, error) {
	if err := errors.Join(core.CheckPrivate(private), core.CheckDepth(depth)); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s, err := p.secure(ctx, c.(*net.TCPConn), host)
	var answer []byte
	if err == nil {
		answer, err = greet(ctx, s, private)
	}
	var q *queuePair
	if err == nil {
		q, err = start(p, s, answer, depth)
	}
	if err != nil {
		_ = c.Close() // TLS may have closed it
		return nil, err
	}
	return q, nil
}

// Close closes everything that is still open.
func (p *Provider) Close() error {
	err := errors.Join(p.listeners.Close(), p.pairs.Close())
	p.pulse.stop()
	return errors.Join(err, p.regions.Close())
}

// The greeting: the dialer sends magic, a length byte and its private data; the
// listener answers with a verdict byte, a length byte and its private data or
// the reason of its refusal.
const (
	magic    = "redytcp2"
	accepted = 1
	rejected = 2
)

// greet says hello and returns the listener's private data.
func greet(ctx context.Context, conn net.Conn, private []byte) ([]byte, error) {
	// Ending ctx ends a read or write under way by moving the deadline into the
	// past.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	verdict, answer, err := exchange(conn, private)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case verdict == rejected:
		return nil, fmt.Errorf("%w: %s", fabric.ErrRejected, answer)
	case verdict != accepted || len(answer) > fabric.MaxPrivate:
		return nil, errFrame
	}
	return answer, nil
}

func exchange(conn net.Conn, private []byte) (verdict byte, answer []byte, err error) {
	hello := append(append([]byte(magic), byte(len(private))), private...)
	if _, err := conn.Write(hello); err != nil {
		return 0, nil, err
	}
	var head [2]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return 0, nil, err
	}
	answer = make([]byte, head[1])
	_, err = io.ReadFull(conn, answer)
	return head[0], answer, err
}

type listener struct {
	provider *Provider
	depth    int
	addr     string
	acceptor *core.Acceptor
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Accept(ctx context.Context) (fabric.Request, error) { return l.acceptor.Accept(ctx) }

func (l *listener) Close() error {
	l.provider.listeners.Remove(l)
	return l.acceptor.Close()
}

func (l *listener) hello(c net.Conn) (fabric.Request, error) {
	s, err := l.provider.secure(context.Background(), c.(*net.TCPConn), "")
	if err != nil {
		return nil, err
	}
	var head [len(magic) + 1]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return nil, err
	}
	n := int(head[len(magic)])
	if string(head[:len(magic)]) != magic || n > fabric.MaxPrivate {
		l.provider.malformed.Add(1)
		return nil, errFrame
	}
	private := make([]byte, n)
	if _, err := io.ReadFull(s, private); err != nil {
		return nil, err
	}
	return &request{listener: l, conn: s, private: private}, nil
}

// request is a host that said hello. Its one user answers it once.
type request struct {
	listener *listener
	conn     *stream
	private  []byte
	answered bool
}

func (r *request) Private() []byte { return r.private }

func (r *request) Accept(private []byte) (fabric.QueuePair, error) {
	if err := core.CheckPrivate(private); err != nil {
		return nil, err
	}
	if r.answered {
		return nil, errors.New("tcp accept: answered already")
	}
	err := r.answer(accepted, private)
	var q *queuePair
	if err == nil {
		q, err = start(r.listener.provider, r.conn, r.private, r.listener.depth)
	}
	if err != nil {
		_ = r.conn.socket.Close()
		return nil, fmt.Errorf("tcp accept from %s: %w", r.conn.RemoteAddr(), err)
	}
	return q, nil
}

func (r *request) Reject(reason string) error {
	if r.answered {
		return nil
	}
	if len(reason) > 255 {
		reason = reason[:255]
	}
	_ = r.answer(rejected, []byte(reason)) // a peer that is gone knows
	return r.conn.socket.Close()
}

func (r *request) answer(verdict byte, data []byte) error {
	r.answered = true
	if err := r.conn.SetDeadline(time.Now().Add(core.HandshakeTime)); err != nil {
		return err
	}
	_, err := r.conn.Write(append([]byte{verdict, byte(len(data))}, data...))
	return err
}
