package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
)

// stream is a connection before it belongs to a queue pair: the socket, or TLS over it.
type stream struct {
	net.Conn
	socket *net.TCPConn
	tls    *tls.Conn // nil without TLS
	wire   *wire
}

// wire is the socket that TLS sees. It writes to the socket, and blocks, during the handshake;
// afterwards it writes to an outbox and never blocks, neither the sender of frames nor the
// reader, for which TLS answers a request for new keys.
type wire struct {
	*net.TCPConn
	out atomic.Pointer[outbox]
}

func (w *wire) Write(b []byte) (int, error) {
	o := w.out.Load()
	if o == nil {
		return w.TCPConn.Write(b)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	if o.pending() > 4*window { // the outbox before it bounds frames, but not TLS's own answers
		return 0, fmt.Errorf("%w: what TLS answers is not read", errFrame)
	}
	o.buf = append(o.buf, b...)
	o.flush()
	return len(b), nil
}

// secure starts TLS on a new connection, if the provider has TLS. The end of ctx or the
// socket's deadline ends the handshake.
func (p *Provider) secure(ctx context.Context, c *net.TCPConn, server string) (*stream, error) {
	s := &stream{Conn: c, socket: c}
	if p.tls == nil {
		return s, nil
	}
	s.wire = &wire{TCPConn: c}
	if server == "" {
		s.tls = tls.Server(s.wire, p.tls)
	} else {
		config := p.tls
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName = server
		}
		s.tls = tls.Client(s.wire, config)
	}
	s.Conn = s.tls
	return s, s.tls.HandshakeContext(ctx)
}
