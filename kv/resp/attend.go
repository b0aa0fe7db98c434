package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/redykv/redykv/kv/resp/internal/poll"
)

var (
	errServerEnds = errors.New("the server ends")
	errClientGone = errors.New("the client has closed the connection")
)

// attend calls do with a context that ends when the client closes its connection, or its direction to the
// server, and when the server disconnects all clients. Nothing is read from the client meanwhile.
func (c *client) attend(do func(ctx context.Context)) {
	ctx, cancel := context.WithCancelCause(c.server.working)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		tick := time.NewTicker(c.server.opts.lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if poll.Gone(socket(c.conn)) {
				c.server.opts.Logger.Debug("ending the command of a client that has gone", "client", c.id)
				cancel(errClientGone)
			}
		}
	}()
	defer func() {
		cancel(nil)
		<-looked // from now on the connection may change its owner
	}()
	do(ctx)
}

// socket returns the connection below TLS.
func socket(conn net.Conn) net.Conn {
	if encrypted, ok := conn.(*tls.Conn); ok {
		return encrypted.NetConn()
	}
	return conn
}
