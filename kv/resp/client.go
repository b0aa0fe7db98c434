package resp

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv/resp/internal/poll"
)

// Sizes in bytes of replies. At fullOutput, replies are sent before further commands run. A
// buffer larger than keptOutput is freed after the batch.
const (
	fullOutput = 256 << 10
	keptOutput = 1 << 20
)

// Limits of the input that is discarded from a client whose connection ends with an error or
// with the server.
const (
	lingering      = time.Second
	lingeringBytes = 16 << 20
)

// client is one connection. Its goroutine, or its loop, owns it. The server may set conn's
// deadlines and close it.
type client struct {
	server *Server
	conn   net.Conn
	id     int64
	resp3  bool
	commandState
	sub *subscriber // nil before the first subscription

	in     input
	ahead  readAhead
	out    []byte // replies that are not sent yet
	output output
	needs  uint64 // the LastCommit of the store that out waits for; 0: none
	// needsAt is where the replies begin in out that wait for needs. The others are sent with them, but
	// do not depend on it.
	needsAt int

	worker    *worker // borrowed from the first operation of a batch to the batch's end
	quit      bool    // no further command runs
	leaves    bool    // quit follows after the command, or the transaction
	refused   bool    // quit, because the input was invalid or too large
	truncated bool    // quit or leaves, and a reply is missing: only out[:sendable] is sent
	sendable  int

	readUntil, writeUntil time.Time // the deadlines of conn

	looped *poll.Conn // conn, if a loop may own it; else nil
	loop   *loop      // the loop that owns it; nil if a goroutine does
	seen   time.Time  // when the loop last read from it
	plain  int        // batches of simple commands since the last other command
	held   request    // if holds, a command that the goroutine runs first
	holds  bool
}

// serve answers commands until the connection ends or a loop takes it over.
func (c *client) serve() (looped bool) {
	for !c.quit {
		if c.waits != nil {
			if err := c.await(); err != nil {
				c.endReading(err)
			} else {
				c.execute()
			}
			c.write()
			c.noteSent()
			c.quit = c.quit || c.mayEnd()
			continue
		}
		switch err := c.fill(); {
		case err == nil:
			c.server.counts.in.Add(uint64(c.in.last))
			c.push() // messages that were published before the commands arrived
			c.execute()
		case !errors.Is(err, errMessages):
			c.endReading(err)
		}
		c.write()
		c.noteSent()
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

// endReading ends the connection after an error of fill.
func (c *client) endReading(err error) {
	c.quit = true
	switch {
	case errors.Is(err, errTooMuchInput):
		c.out = appendError(c.out, "ERR "+err.Error())
		c.refused = true
	case !errors.Is(err, io.EOF):
		if isTimeout(err) && !c.server.closing.Load() {
			c.server.counts.idle.Add(1)
		}
		c.server.opts.Logger.Debug("reading from client", "client", c.id, "err", err)
	}
}

// mayEnd reports whether the server is closing, all input read so far has been answered, and the client
// does not wait: await ends that.
func (c *client) mayEnd() bool {
	return len(c.in.ahead) == 0 && c.waits == nil && c.server.closing.Load()
}

// interrupted reports whether the server is closing while the client sends more.
func (c *client) interrupted() bool { return c.in.full && c.server.closing.Load() }

// linger discards input before the connection is closed, so that the client receives its last
// replies: when a socket with unread input is closed, TCP resets the connection, and the
// client's system drops replies that the client has not read.
func (c *client) linger() {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.server.mu.Lock() // guards the deadlines that a closing server sets
	err := c.conn.SetReadDeadline(time.Now().Add(lingering))
	c.server.mu.Unlock()
	if err != nil {
		return
	}
	c.in.release()
	_, _ = io.CopyN(io.Discard, c.conn, lingeringBytes) // an error also ends it
}

// fill waits for input. It frees large buffers of an idle connection.
func (c *client) fill() error {
	if len(c.in.ahead) > 0 {
		return c.in.fill()
	}
	idle := c.server.opts.IdleTimeout
	if c.subscribing() { // waiting for messages is not idle
		idle = 0
	}
	if c.in.roomy() || cap(c.out) > restingOutput {
		patience := c.server.opts.releaseAfter
		if idle > 0 {
			patience = min(patience, idle)
		}
		if err := c.readWithin(patience); err != nil {
			return err
		}
		err := c.receive()
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
	return c.receive()
}

// readWithin sets a read deadline between patience and twice that. It does not set it for each
// read, because reading the clock costs less than setting a deadline.
func (c *client) readWithin(patience time.Duration) error {
	now := time.Now()
	if left := c.readUntil.Sub(now); left >= patience && left <= 2*patience {
		return nil
	}
	return c.setReadDeadline(now.Add(2 * patience))
}

// setReadDeadline keeps the deadline of a closing server: the server first sets closing, then
// the deadline.
func (c *client) setReadDeadline(t time.Time) error {
	c.readUntil = t
	err := c.conn.SetReadDeadline(t)
	if err == nil && c.server.closing.Load() {
		err = c.conn.SetReadDeadline(longAgo)
	}
	return err
}

// sendIfLarge sends the replies if they are large. It first gives back the worker, whose batch is
// empty, so that a slow client does not hold one.
func (c *client) sendIfLarge() {
	if len(c.out) < fullOutput || c.locked || c.loop != nil {
		return
	}
	if c.dropping {
		c.out = c.out[:c.dropFrom]
		return
	}
	c.giveBack()
	c.writeReplies()   // without messages: the reply of the present command may be sent in part
	c.now = time.Now() // the client may have let it wait
}

// commandState is the state of a connection that commands use.
type commandState struct {
	user User // nil until the client has authenticated
	free bool // there is no access control
	// changing is the user, if its permissions may change.
	changing ChangingUser
	db       uint8

	multi    *transaction // between MULTI and EXEC
	watching []watched
	enlisted bool // it is counted in the server's watches
	// watchBytes of the budget for large requests are taken for watching.
	watchBytes int64

	mode     replyMode
	dropping bool // while a command runs whose reply is dropped,
	dropFrom int  // which begins there in out

	waits   *waiter  // the client waits, and no command runs
	ready   [][]byte // records' keys that it has changed and others wait for
	serving bool     // within serveWaiters

	firstWrite int // where in out the reply to the first write of the batch begins, or -1

	running uint16   // number of the command that adds operations
	tracker *tracker // nil without CLIENT TRACKING
	asked   bool     // CLIENT CACHING was called for the next command

	executing   bool // within EXEC or a script
	transacting bool // within EXEC
	scripting   bool // within a script
	alone       bool // within exclusively
	locked      bool // within atomically or exclusively: the worker is not given back
	lockedAt    int  // length of out at the beginning of that
	excessAt    int  // the same, or within a script the length of out at the beginning of a command
	excess      bool // the replies from excessAt on were too large: they are dropped

	// Of a command whose operations may be in several batches:
	tally        int64  // the number for its reply
	found        bool   // replyTake has found the key,
	taken        []byte // with this stored value
	takenExpires int64  // and this expiry
	failed       error  // its first error
	refusal      string // the error reply, after errReplied

	// Of the batch, for statistics:
	began        time.Time // when it was read
	now          time.Time // for expiries: began, or the end of a later wait
	ran          ran
	hits, misses int64
	present      uint32 // 1 + the number of the current or last command; 0 if that is unknown

	// Read by other goroutines.
	info    atomic.Pointer[clientInfo]
	created time.Time
	active  atomic.Int64 // Unix time in milliseconds of the last batch
	// As of the end of the last batch: present, bytes of an incomplete command, and bytes of the
	// buffers for input and output.
	last                    atomic.Uint32
	unread, inputs, outputs atomic.Int64
	subscriptions           [topicKinds]atomic.Int32
}

// clientInfo is what a client says about itself. It is replaced, never changed.
type clientInfo struct {
	name, user      string
	db              uint8
	tracking        string // its flags in CLIENT LIST
	redirect        int64  // in CLIENT LIST's form
	library, libVer string
	resp3           bool
}

// initCommands initializes the state of a new connection.
func (c *client) initCommands() {
	c.created = time.Now()
	c.active.Store(c.created.UnixMilli())
	c.info.Store(&clientInfo{redirect: -1})
	c.asNew()
}

// asNew resets the connection to the state of a new one.
func (c *client) asNew() {
	c.endMulti()
	c.unwatch()
	c.unsubscribeAll()
	c.untrack()
	c.speak(false)
	c.sendReplies()
	c.setDB(0)
	if users := c.server.opts.Users; users == nil {
		c.become(everybody{})
	} else {
		c.become(users.Anonymous())
	}
	c.describe(func(i *clientInfo) { i.name, i.resp3 = "", false })
}

// describe changes the connection's info.
func (c *client) describe(change func(*clientInfo)) {
	info := *c.info.Load()
	change(&info)
	c.info.Store(&info)
}
