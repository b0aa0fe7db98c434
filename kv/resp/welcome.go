package resp

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// handshakeTimeout is how long a client may take to agree on encryption.
const handshakeTimeout = 10 * time.Second

// welcome says whether the client may stay, whom it tells if not.
func (c *client) welcome() bool {
	s := c.server
	if encrypted, ok := c.conn.(*tls.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
		defer cancel()
		if err := encrypted.HandshakeContext(ctx); err != nil {
			s.counts.rejected.Add(1)
			s.opts.Logger.Debug("a client that cannot agree on TLS", "client", c.id, "address", c.conn.RemoteAddr(), "err", err)
			return false
		}
	}
	if s.opts.ProtectedMode && !s.guarded() && !local(c.conn) {
		s.counts.rejected.Add(1)
		c.out = appendError(nil, errProtected)
		c.write()
		c.linger()
		return false
	}
	return true
}

// guarded says whether clients have to show who they are.
func (s *Server) guarded() bool { return s.opts.Users != nil && s.opts.Users.Anonymous() == nil }

// local says whether the client is on this machine.
func local(conn net.Conn) bool {
	switch addr := conn.RemoteAddr().(type) {
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return conn.RemoteAddr().Network() == "pipe" // within a process
}
