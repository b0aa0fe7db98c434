package resp

import (
	"strings"
	"time"
)

// execute runs every command that has arrived completely.
func (c *client) execute() {
	c.began = time.Now()
	c.now = c.began
	c.in.mark()
	if c.holds && c.loop == nil {
		held := c.held
		c.held, c.holds = request{}, false
		if !c.quit {
			c.next(held)
		}
	}
	var pushed time.Time // when messages were last sent between two commands
	for !c.quit && !c.holds && c.waits == nil {
		r, ok, err := c.in.next()
		if err != nil {
			c.fail("ERR " + err.Error())
			c.quit, c.refused = true, true
			break
		}
		if !ok {
			break
		}
		if r.len() == 0 {
			continue
		}
		if len(r.data) > largeValues {
			c.server.pool.sawValue(r.largest())
		}
		c.next(r)
		if len(c.out) >= fullOutput {
			if c.loop != nil { // a worker continues
				break
			}
			c.flush() // runs nothing if the commands need no batch
			c.sendIfLarge()
		}
		if c.loop == nil && c.output.queued.Load() >= fullOutput && time.Since(pushed) >= pushFor { // messages do not wait for a long pipeline
			c.flush()
			c.giveBack()
			began := time.Now()
			c.write()
			pushed = time.Now()
			c.began, c.now = c.began.Add(pushed.Sub(began)), pushed
		}
	}
	c.flush()
	c.giveBack()
	c.noteRun()
}

// next runs the next command, or adds it to the batch.
func (c *client) next(r request) {
	if c.mode == repliesOn {
		c.dispatch(r)
	} else {
		c.dispatchDropping(r)
	}
}

// dispatch is next with the reply.
func (c *client) dispatch(r request) {
	cmd, refusal := c.server.table.find(r)
	c.present = 0
	if cmd != nil {
		c.present = uint32(cmd.n) + 1
	}
	if cmd != nil && !cmd.plain || r.len() > plainArgs || c.loop != nil && (c.server.pool.mayBeLarge(cmd, r) || choosesMany(cmd, r)) {
		c.plain = 0
		if c.loop != nil {
			c.held, c.holds = r, true
			return
		}
	}
	if refusal == "" {
		refusal = c.refusalOf(cmd, r)
	}
	if refusal == "" && c.sub != nil && cmd.flags&flagListens == 0 && !c.resp3 && c.subscribing() {
		refusal = onlyForSubscribers(cmd.name)
	}
	if refusal == "" && c.worker == nil && cmd.flags&flagAllowBusy == 0 && c.server.scripts.busyAlone.Load() > 0 {
		refusal = errBusy
	}
	if refusal == "" && c.server.paused.on.Load() && c.mustPause(cmd) {
		if c.loop != nil {
			c.held, c.holds = r, true
			return
		}
		c.flush()
		c.giveBack()
		if !c.server.paused.wait(c) {
			c.quit = true // the command is not run
			return
		}
		c.began = time.Now()
		c.now = c.began
		refusal = c.refusalOf(cmd, r) // permissions may have changed
	}
	if refusal == "" && c.loop != nil && c.removesMany(cmd, r) {
		c.plain = 0
		c.held, c.holds = r, true
		return
	}
	switch {
	case refusal != "":
		c.refuse(cmd, r, refusal)
	case c.multi != nil && cmd.flags&flagAtOnce == 0:
		c.queue(cmd, r)
	default:
		c.run(cmd, r)
	}
	c.quit = c.quit || c.leaves
	if c.asked && c.multi == nil && cmd != nil && !strings.HasPrefix(cmd.name, "client|") {
		c.asked = false // CLIENT CACHING is about one command or transaction
	}
}

// refusalOf returns the error reply if a command may not run now, or else "". All commands pass it right
// before they run or are queued, also those of transactions and scripts.
func (c *client) refusalOf(cmd *command, r request) (refusal string) {
	if !c.free {
		refusal = c.permitted(cmd, r)
	}
	switch {
	case refusal != "":
	case c.server.loading.on.Load() && !cmd.whileLoading():
		refusal = errLoading
	default:
		refusal = c.oversize(cmd, r)
	}
	if refusal == "" && c.grows(cmd) {
		if err := c.server.store.WriteError(); err != nil {
			refusal = unwritable(err)
		}
	}
	return refusal
}

// unwritable returns the reply to a command that is refused because the store cannot be written.
func unwritable(err error) string { return "MISCONF the store cannot be written: " + err.Error() }

// grows reports whether a command may need room in the store. It is refused while the store cannot be
// written, as when its device is full. Those that make room are not.
func (c *client) grows(cmd *command) bool {
	return cmd.flags&flagDenyOOM != 0 || c.multi != nil && c.multi.grows && cmd.name == "exec"
}

// refuse replies to a command that is not run.
func (c *client) refuse(cmd *command, r request, refusal string) {
	c.server.counts.commands.Add(1)
	if cmd != nil {
		c.server.stats.refuse(c.id, cmd.n)
	}
	if name := r.arg(0); is(name, "post") || is(name, "host:") {
		// A browser sends this on behalf of a web page: close the connection.
		c.server.opts.Logger.Warn("a client sent an HTTP request", "client", c.id, "address", c.conn.RemoteAddr())
		c.flush()
		c.quit = true
		return
	}
	if cmd != nil && cmd.name == "exec" {
		c.flush()
		c.endMulti()
		c.unwatch()
		refusal = errExecBecause + strings.TrimPrefix(refusal, "ERR ")
	}
	if c.multi != nil {
		c.multi.failed = true
	}
	c.fail(refusal)
}

// run runs a command, or adds it to the batch.
func (c *client) run(cmd *command, r request) {
	if cmd.flags&flagSolo != 0 {
		c.runSolo(cmd, r)
		return
	}
	c.count(cmd)
	c.enter(cmd, r)
	cmd.run(c, r)
	if cmd.flags&flagWrite != 0 && !c.locked && c.server.blocking.waiting.Load() > 0 && c.isAwaited(cmd, r) {
		c.flush()
	}
}

// enter notes that the operations that follow are part of a command.
func (c *client) enter(cmd *command, r request) {
	c.running = uint16(cmd.n)
	if c.tracker != nil && cmd.flags&flagReadOnly != 0 {
		c.remember(cmd, r)
	}
}

// runSolo runs a command that may take long. It is timed by itself, so that it does not count
// as the latency of the commands before it.
func (c *client) runSolo(cmd *command, r request) {
	c.flush()
	began := time.Now()
	c.enter(cmd, r)
	cmd.run(c, r)
	c.flush()
	took := time.Since(began)
	if !c.executing { // EXEC's own time has that of its commands
		c.began, c.now = c.began.Add(took), began.Add(took)
	}
	if cmd.flags&flagIdles != 0 {
		took = 0
	}
	c.ran.solo = append(c.ran.solo, soloRun{uint16(cmd.n), took})
	if cmd.flags&flagSkipSlowlog == 0 {
		c.server.slow.note(c, r, 0, took)
	}
}

// reply flushes the batch and returns the output, for a reply that needs no operation.
func (c *client) reply() []byte {
	c.flush()
	return c.out
}

// fail replies to a command with an error.
func (c *client) fail(text string) {
	c.reply()
	c.error(text)
}

// error appends an error as the reply to an operation of the batch.
func (c *client) error(text string) {
	c.server.stats.addError(text)
	c.out = appendError(c.out, text)
}
