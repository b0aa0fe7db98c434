package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"time"

	"github.com/redykv/redykv/kv/resp/internal/poll"
)

var (
	errServerEnds = errors.New("the server ends")
	errClientGone = errors.New("the client has closed the connection")
)

// turns limits the commands that scan at the same time. It has an element for each that does.
type turns chan struct{}

// newScanTurns returns the turns of commands that scan the whole log. More of them at a time would take
// the processors from other commands, and gain little.
func newScanTurns() turns { return make(turns, max(runtime.GOMAXPROCS(0)/2, 2)) }

func (in turns) tryTake() bool {
	select {
	case in <- struct{}{}:
		return true
	default:
		return false
	}
}

// take waits for a turn. It returns false if ctx ends before.
func (in turns) take(ctx context.Context) bool {
	select {
	case in <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (in turns) give() { <-in }

// scanning runs a command that scans: it calls do, which replies, in its turn. The client has no worker
// meanwhile, so nobody waits for the scan, unless the client has the store alone. If the client goes before
// its turn, do is not called.
func (c *client) scanning(in turns, do func(ctx context.Context)) {
	c.flush()
	if c.giveBack(); c.quit {
		return
	}
	c.attend(func(ctx context.Context) {
		if !c.locked {
			if !in.take(ctx) {
				c.fail("ERR waiting to scan: " + context.Cause(ctx).Error())
				return
			}
			defer in.give()
		}
		do(ctx)
	})
}

// step is scanning for a command that scans a small part of the index and does not end early. Only its
// wait for a turn, if there is one, ends with the client.
func (c *client) step(do func()) {
	c.flush()
	if c.giveBack(); c.quit {
		return
	}
	switch in := c.server.steps; {
	case c.locked:
		do()
	case in.tryTake():
		defer in.give()
		do()
	default:
		c.scanning(in, func(context.Context) { do() })
	}
}

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
				return
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
