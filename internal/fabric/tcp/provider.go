// Package tcp is the fabric between hosts that reach each other by TCP: one connection per
// queue pair, with the frames listed in frame.go.
//
// TCP has no one-sided operations. The provider on the passive host executes them, in the
// goroutine that reads the connection; the owner of the passive queue pair is not involved.
// The requests of one Submit are sent in one write, and so are the replies to the requests
// received in one read.
//
// With TLS all bytes are encrypted. A peer that violates the protocol is disconnected and
// counted. A peer that is silent for Options.Silence is disconnected, whether its host is gone
// or its process is stopped (pulse.go). Both sides check tokens, lengths and offsets.
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
	tls       *tls.Config // nil: no TLS
	silence   time.Duration
	pulse     pulse
	regions   *core.Registry
	listeners core.Closers
	pairs     core.Closers
	malformed atomic.Uint64
}

// Options configure a provider. The zero Options are valid.
type Options struct {
	// TLS, if set, secures all connections. Listeners use its certificates, and so do
	// dialers where listeners require one. Without ServerName a dialer verifies the name
	// or address that it dials. Default: no TLS.
	TLS *tls.Config
	// Silence is the time after which a silent peer is disconnected: its process does not
	// answer, or its host is unreachable. Each end has its own. Default: core.Silence, 3 s.
	Silence time.Duration
}

// Open returns a new provider.
func Open() *Provider { return OpenWith(Options{}) }

// OpenWith is Open with options.
func OpenWith(opts Options) *Provider {
	if opts.TLS != nil {
		opts.TLS = opts.TLS.Clone()
		opts.TLS.DynamicRecordSizingDisabled = true // batches are large or need low latency
	}
	if opts.Silence <= 0 {
		opts.Silence = core.Silence
	}
	return &Provider{tls: opts.TLS, silence: opts.Silence, pulse: newPulse(), regions: core.NewRegistry()}
}

// Malformed returns the number of connections that ended because the peer violated the protocol.
func (p *Provider) Malformed() uint64 { return p.malformed.Load() }

func (p *Provider) Name() string { return Name }

func (p *Provider) Alloc(size int) (fabric.Region, error) {
	r, err := p.regions.Alloc(size)
	if err != nil {
		return nil, err // not r: a nil *core.Region in a Region is not nil
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

// Close closes listeners, queue pairs and regions.
func (p *Provider) Close() error {
	err := errors.Join(p.listeners.Close(), p.pairs.Close())
	p.pulse.stop()
	return errors.Join(err, p.regions.Close())
}

// The greeting: the dialer sends magic, a length byte and its private data; the
// listener answers with a verdict byte, a length byte, and its private data or the reason for
// its refusal.
const (
	magic    = "redytcp2"
	accepted = 1
	rejected = 2
)

// greet sends the greeting and returns the listener's private data.
func greet(ctx context.Context, conn net.Conn, private []byte) ([]byte, error) {
	// The end of ctx ends a blocked read or write by moving its deadline into the past.
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

// request is a peer that has sent its greeting. It is answered once.
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
		return nil, errors.New("tcp accept: already answered")
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
	_ = r.answer(rejected, []byte(reason)) // the peer may be gone
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
