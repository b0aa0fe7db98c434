package resp

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// CLIENT PAUSE: commands wait until a time, or until CLIENT UNPAUSE. A connection waits on a goroutine,
// without a worker; a loop hands over a connection that has to wait.

// paused says which commands wait.
type paused struct {
	on atomic.Bool // some do

	mu    sync.Mutex // guards the fields below
	all   bool       // not only those that may write
	until time.Time
	timer *time.Timer   // calls lapse
	over  chan struct{} // closed when the pause ends; nil without one
}

// begin begins a pause, or extends the present one. A pause of all commands is not weakened, and none
// is shortened.
func (p *paused) begin(all bool, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == nil {
		p.over, p.all, p.until = make(chan struct{}), false, time.Time{}
	}
	p.all = p.all || all
	if until.After(p.until) {
		p.until = until
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(p.until), p.lapse)
	} else {
		p.timer.Reset(time.Until(p.until))
	}
	p.on.Store(true)
}

// end ends the pause, if there is one.
func (p *paused) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked()
}

func (p *paused) endLocked() {
	if p.over == nil {
		return
	}
	p.timer.Stop()
	p.on.Store(false)
	close(p.over)
	p.over = nil
}

// lapse ends the pause if its time has come.
func (p *paused) lapse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil && !time.Now().Before(p.until) {
		p.endLocked()
	}
}

// wait waits for the end of the pause. It returns false if the client goes before.
func (p *paused) wait(c *client) (ok bool) {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over == nil {
		return true
	}
	if !c.dropping {
		c.write() // the replies of earlier commands
	}
	c.attend(func(ctx context.Context) {
		select {
		case <-over:
			ok = true
		case <-ctx.Done():
		}
	})
	return ok
}

// mustPause reports whether a command waits while there is a pause.
func (c *client) mustPause(cmd *command) bool {
	p := &c.server.paused
	p.mu.Lock()
	all := p.all
	p.mu.Unlock()
	// An operator can end the pause.
	if cmd.name == "client|unpause" || cmd.name == "client|pause" {
		return false
	}
	return all || c.mayWrite(cmd)
}

// mayWrite reports whether a command may write, or publishes.
func (c *client) mayWrite(cmd *command) bool {
	switch cmd.name {
	case "publish", "spublish", "eval", "evalsha", "fcall", "pfcount":
		return true
	case "exec":
		if c.multi != nil {
			for _, q := range c.multi.queue {
				if c.mayWrite(q.cmd) {
					return true
				}
			}
		}
		return false
	}
	return cmd.flags&flagWrite != 0
}

// longestPause keeps times within what time.Time compares.
const longestPause = 100 * 365 * 24 * time.Hour

func clientPause(c *client, r request) {
	timeout, refusal := parseTimeout(r.arg(2))
	all := true
	switch {
	case r.len() > 4:
		c.fail(subcommandSyntax(r))
		return
	case r.len() == 4 && is(r.arg(3), "write"):
		all = false
	case r.len() == 4 && !is(r.arg(3), "all"):
		c.fail("ERR CLIENT PAUSE mode must be WRITE or ALL")
		return
	case refusal != "":
		c.fail(refusal)
		return
	}
	if timeout > 0 {
		c.flush() // earlier commands
		c.server.paused.begin(all, time.Now().Add(min(timeout, longestPause)))
	}
	c.out = appendSimple(c.reply(), "OK")
}

// parseTimeout parses a timeout in milliseconds. It returns the error of one that is not valid.
func parseTimeout(arg []byte) (timeout time.Duration, refusal string) {
	ms, ok := parseInt(arg)
	switch {
	case !ok:
		return 0, "ERR timeout is not an integer or out of range"
	case ms < 0:
		return 0, "ERR timeout is negative"
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, ""
}

func clientUnpause(c *client, _ request) {
	c.server.paused.end()
	c.out = appendSimple(c.reply(), "OK")
}
