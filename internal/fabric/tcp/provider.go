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
	"cmp"
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
	core.Sockets
	tls     *tls.Config // nil: no TLS
	silence time.Duration
	pulse   pulse
	regions *core.Registry
	waiting atomic.Int64 // bytes that wait to be written to the peers that were accepted
	most    int64        // from how many on such a peer that does not read is disconnected
}

// mostWaiting is how many bytes may wait for peers that do not read. A peer with few is not disconnected.
const mostWaiting = 256 << 20

// Options configure a provider. The zero Options are valid.
type Options struct {
	// TLS, if set, secures all connections. Listeners use its certificates, and so do
	// dialers where listeners require one. Without ServerName a dialer verifies the name
	// or address that it dials. Default: no TLS.
	TLS *tls.Config
	// Silence is the time after which a silent peer is disconnected: its process does not
	// answer, or its host is unreachable. Each end has its own. Default: core.Silence, 3 s.
	Silence time.Duration
	// Sparse makes memory of regions come in small pages, for regions of which little is
	// written. Default: huge pages, where the system has them.
	Sparse bool
}

// Open returns a new provider.
func Open(opts Options) *Provider {
	if opts.TLS != nil {
		opts.TLS = opts.TLS.Clone()
		opts.TLS.DynamicRecordSizingDisabled = true // batches are large or need low latency
	}
	if opts.Silence <= 0 {
		opts.Silence = core.Silence
	}
	return &Provider{
		Sockets: core.Sockets{Transport: Name, Network: "tcp"},
		tls:     opts.TLS, silence: opts.Silence, pulse: newPulse(), regions: core.NewRegistry(opts.Sparse), most: mostWaiting,
	}
}

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
	return p.Serve(cmp.Or(addr, "127.0.0.1:0"), depth, func(c net.Conn) (fabric.Request, error) {
		return p.hello(c.(*net.TCPConn), depth)
	})
}

func (p *Provider) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	return p.Connect(ctx, addr, private, depth, func(c net.Conn) (fabric.QueuePair, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		s, err := p.secure(ctx, c.(*net.TCPConn), host)
		var answer []byte
		if err == nil {
			answer, err = greet(ctx, s, private)
		}
		if err != nil {
			return nil, err
		}
		return start(p, s, answer, depth, core.Terms{}, nil)
	})
}

// Close closes listeners, queue pairs and regions.
func (p *Provider) Close() error {
	err := errors.Join(p.Listeners.Close(), p.Pairs.Close())
	p.pulse.stop()
	return errors.Join(err, p.regions.Close())
}

// The greeting: the dialer sends magic, a length byte and its private data; the
// listener answers with a verdict byte, a length byte, and its private data or the reason for
// its refusal.
const (
	magic    = "redytcp3"
	accepted = 1
	rejected = 2
)

// greet sends the greeting and returns the listener's private data.
func greet(ctx context.Context, conn net.Conn, private []byte) ([]byte, error) {
	var verdict byte
	var answer []byte
	err := core.Within(ctx, conn.SetDeadline, func() (err error) {
		verdict, answer, err = exchange(conn, private)
		return err
	})
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

// hello reads a peer's greeting.
func (p *Provider) hello(c *net.TCPConn, depth int) (fabric.Request, error) {
	s, err := p.secure(context.Background(), c, "")
	if err != nil {
		return nil, err
	}
	var head [len(magic) + 1]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return nil, err
	}
	n := int(head[len(magic)])
	if string(head[:len(magic)]) != magic || n > fabric.MaxPrivate {
		p.CountMalformed()
		return nil, errFrame
	}
	private := make([]byte, n)
	if _, err := io.ReadFull(s, private); err != nil {
		return nil, err
	}
	return p.NewRequest(c, private, func(answer []byte, terms core.Terms) (fabric.QueuePair, error) {
		if err := s.answer(accepted, answer); err != nil {
			return nil, err
		}
		return start(p, s, private, depth, terms, &p.waiting)
	}, func(reason string) {
		_ = s.answer(rejected, []byte(reason[:min(len(reason), 255)])) // the peer may be gone
	}), nil
}

func (s *stream) answer(verdict byte, data []byte) error {
	_, err := s.Write(append([]byte{verdict, byte(len(data))}, data...))
	return err
}
