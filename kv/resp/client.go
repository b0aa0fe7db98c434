package resp

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv/resp/internal/poll"
)

// Sizes in bytes of replies: what is written before more is gathered, and the
// largest buffer that is used again for the next batch.
const (
	fullOutput = 256 << 10
	keptOutput = 1 << 20
)

// For how long, and for how many bytes, a client may go on sending whose connection ends
// with an error, or with the server.
const (
	lingering      = time.Second
	lingeringBytes = 16 << 20
)

// client is one connection. Its goroutine owns it, but for conn's deadlines and
// Close, which the server uses to end it.
type client struct {
	server *Server
	conn   net.Conn
	id     int64
	resp3  bool
	commandState

	in     input
	ahead  readAhead
	out    []byte // replies not written yet
	output output
	owes   uint64 // the store's LastCommit that they may not be sent before; 0: they may

	worker  *worker // borrowed from the first operation of a batch to its end
	quit    bool    // nothing more is carried out…
	refused bool    // …for what it sent is no command, or too large
	silent  bool    // …for a reply is missing: nothing is sent…
	audible int     // …but so many bytes of out

	// The deadlines that conn has.
	readUntil, writeUntil time.Time

	looped *poll.Conn // conn, where a loop may have it
	loop   *loop      // that has it; nil: a goroutine
	seen   time.Time  // when it sent something, to the loop
	plain  int        // batches since it last was not fit for one
	held   request    // a command that a goroutine is to carry out first…
	holds  bool       // …if there is one
}

// serve answers until the client or the server has had enough, or a loop has the
// connection.
func (c *client) serve() (looped bool) {
	counts := &c.server.counts
	for !c.quit {
		if err := c.fill(); err != nil {
			if errors.Is(err, errTooMuchInput) {
				c.out = appendError(c.out, "ERR "+err.Error())
				c.write()
				c.refused = true
			} else if !errors.Is(err, io.EOF) {
				if isTimeout(err) && !c.server.closing.Load() {
					counts.idle.Add(1)
				}
				c.server.opts.Logger.Debug("reading from client", "client", c.id, "err", err)
			}
			break
		}
		counts.in.Add(uint64(c.in.last))
		c.execute()
		c.write()
		c.quit = c.quit || c.mayEnd()
		if c.plain++; c.plain > plainBatches && c.server.enroll(c) {
			return true
		}
	}
	if c.refused || c.interrupted() {
		c.linger()
	}
	return false
}

// mayEnd says whether the server is closing, and the client has all replies to what the
// server has read.
func (c *client) mayEnd() bool { return len(c.in.ahead) == 0 && c.server.closing.Load() }

// interrupted says whether the server is closing while the client sends more.
func (c *client) interrupted() bool { return c.in.full && c.server.closing.Load() }

// linger lets the client have the last replies before its connection ends: if it were
// closed with something in it unread, the client's system would drop what the
// client has not read either.
func (c *client) linger() {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.server.mu.Lock() // where it is closing, it has set the deadlines of all clients
	err := c.conn.SetReadDeadline(time.Now().Add(lingering))
	c.server.mu.Unlock()
	if err != nil {
		return
	}
	c.in.release()
	_, _ = io.CopyN(io.Discard, c.conn, lingeringBytes) // whatever it is
}

// fill waits for the client. If it keeps us waiting, it loses its large buffers.
func (c *client) fill() error {
	if len(c.in.ahead) > 0 {
		return c.in.fill()
	}
	idle := c.server.opts.IdleTimeout
	if len(c.in.buf) > restingBuffer || cap(c.out) > restingOutput {
		patience := c.server.opts.releaseAfter
		if idle > 0 {
			patience = min(patience, idle)
		}
		if err := c.readWithin(patience); err != nil {
			return err
		}
		err := c.in.fill()
		if err == nil || !isTimeout(err) || c.server.closing.Load() {
			return err
		}
		c.in.shrink()
		c.out = nil
		c.charge()
	}
	switch {
	case idle > 0:
		if err := c.readWithin(idle); err != nil {
			return err
		}
	case !c.readUntil.IsZero():
		if err := c.setReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	return c.in.fill()
}

// readWithin gives the client that long to send something, or up to twice as long: a
// deadline costs more than looking at the clock.
func (c *client) readWithin(patience time.Duration) error {
	now := time.Now()
	if left := c.readUntil.Sub(now); left >= patience && left <= 2*patience {
		return nil
	}
	return c.setReadDeadline(now.Add(2 * patience))
}

// setReadDeadline leaves a closing server's deadline in force: the server says
// that it is closing first, and sets the deadline then.
func (c *client) setReadDeadline(t time.Time) error {
	c.readUntil = t
	err := c.conn.SetReadDeadline(t)
	if err == nil && c.server.closing.Load() {
		err = c.conn.SetReadDeadline(longAgo)
	}
	return err
}

// relieve writes what has been gathered, if that is much. It does not hold a
// worker, whose batch is empty, while a slow client reads.
func (c *client) relieve() {
	if len(c.out) >= fullOutput && !c.locked && c.loop == nil {
		c.giveBack()
		c.write()
	}
}

// commandState is what commands keep of their connection.
type commandState struct {
	user User // nil: it has not authenticated
	free bool // the user is the only one, who may do everything

	multi    *transaction // between MULTI and EXEC
	watching []watched
	enlisted bool // with the server's watches
	// watchBytes are what watching has of the budget for large requests.
	watchBytes int64

	locked   bool // within atomically or exclusively: the worker is not given back
	lockedAt int  // length of out when that began

	// Of a command whose operations may spread over several batches:
	tally        int64  // what its reply will count
	found        bool   // whether it has found the key that it looked for…
	taken        []byte // …and what was there, as it is stored…
	takenExpires int64  // …and until when
	failed       error  // its first error

	// Of the batch, for statistics:
	began        time.Time // when it was read
	firstAt      int       // where its first command lies in the input
	ran          ran
	hits, misses int64
	present      uint32 // the number of the present or last command, from 1; 0: it is none

	// What others may ask for.
	info    atomic.Pointer[clientInfo]
	created time.Time
	active  atomic.Int64  // when it sent something last, in milliseconds of Unix time
	last    atomic.Uint32 // present, at the end of a batch…
	unread  atomic.Int64  // …and bytes of input that were no whole command…
	inputs  atomic.Int64  // …and of the buffers for input…
	outputs atomic.Int64  // …and for output
}

// clientInfo is how a connection calls itself. It is not changed, but replaced.
type clientInfo struct {
	name, user      string
	library, libVer string
	resp3           bool
}

// initCommands makes the connection's state that of a new one.
func (c *client) initCommands() {
	c.created = time.Now()
	c.active.Store(c.created.UnixMilli())
	c.info.Store(new(clientInfo))
	c.asNew()
}

// asNew makes the connection act as one that has said nothing yet.
func (c *client) asNew() {
	c.endMulti()
	c.unwatch()
	c.resp3 = false
	if users := c.server.opts.Users; users == nil {
		c.become(everybody{})
	} else {
		c.become(users.Anonymous())
	}
	c.describe(func(i *clientInfo) { i.name, i.resp3 = "", false })
}

// endCommands gives back what the connection holds of the server.
func (c *client) endCommands() {
	c.endMulti()
	c.unwatch()
}

// describe changes what others see of the connection.
func (c *client) describe(change func(*clientInfo)) {
	info := *c.info.Load()
	change(&info)
	c.info.Store(&info)
}
