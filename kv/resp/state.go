package resp

import (
	"sync/atomic"
	"time"
)

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
