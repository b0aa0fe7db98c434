package resp

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Durability is what the reply to a command that wrote promises: what is there
// after a crash of the process, of the machine, or of all tiers but the device's
// commit point.
type Durability uint8

const (
	// DurabilityNone promises nothing but what the program commits itself.
	DurabilityNone Durability = iota
	// DurabilityEverySecond promises that no more than one second of answered
	// writes is lost, the last ones: what is left is the store as it was at one
	// moment. The server commits about twice a second while there are writes, and
	// replies to more of them wait where a device cannot follow.
	DurabilityEverySecond
	// DurabilityAlways promises that every answered write is there. Replies to
	// writes wait for a commit, which all connections that wait meanwhile share.
	DurabilityAlways

	durabilities
)

var durabilityNames = [durabilities]string{"none", "everysec", "always"}

func (d Durability) String() string {
	if d < durabilities {
		return durabilityNames[d]
	}
	return fmt.Sprintf("Durability(%d)", uint8(d))
}

// MarshalText implements encoding.TextMarshaler.
func (d Durability) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Durability) UnmarshalText(text []byte) error {
	for i, name := range durabilityNames {
		if name == string(text) {
			*d = Durability(i)
			return nil
		}
	}
	return fmt.Errorf("durability %q: want none, everysec or always", text)
}

// With DurabilityEverySecond a commit begins so long after the first write that it
// is for, and replies wait when one is so old that no commit has ended for it.
const (
	commitDelay = 500 * time.Millisecond
	mostAtRisk  = time.Second
)

// committer has the store commit, so that answers to writes come with the
// durability that was promised. Whoever has written calls wait before it answers.
type committer struct {
	commit  func(context.Context) error // [kv.Store.Commit]
	promise Durability
	log     *slog.Logger
	kick    chan struct{} // holds one if there may be something to commit
	ending  chan struct{} // closed when nobody writes any more
	stopped chan struct{} // closed when no commit follows

	mu     sync.Mutex // guards what follows
	ended  *sync.Cond // on mu: a commit has ended
	begun  uint64     // commits that have begun, one at a time
	over   uint64     // of them, those that have ended
	good   uint64     // the last one of these that succeeded
	wanted uint64     // that one is to begin
	err    error      // of the last one
	// When the first write was answered for which no commit has begun, and the first
	// one for which none has succeeded, of the others. Zero: there is none.
	waiting, risked time.Time
}

func newCommitter(commit func(context.Context) error, promise Durability, log *slog.Logger) *committer {
	c := &committer{
		commit: commit, promise: promise, log: log,
		kick:    make(chan struct{}, 1),
		ending:  make(chan struct{}),
		stopped: make(chan struct{}),
	}
	c.ended = sync.NewCond(&c.mu)
	return c
}

// start begins to commit; stop ends it.
func (c *committer) start() {
	if c.promise == DurabilityNone {
		close(c.stopped)
		return
	}
	go c.run()
}

// stop returns when all that was answered is durable, if that can be had. Nobody
// calls wait any more.
func (c *committer) stop() {
	close(c.ending)
	<-c.stopped
}

// state is the error of the last commit.
func (c *committer) state() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// wait returns when what the caller has written may be answered. An error says
// that it is not as durable as promised.
func (c *committer) wait() error {
	switch c.promise {
	case DurabilityAlways:
		return c.waitForCommit()
	case DurabilityEverySecond:
		return c.waitForOldest()
	}
	return nil
}

// waitForCommit waits for a commit that begins from now on.
func (c *committer) waitForCommit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := c.begun + 1
	if c.wanted < mine {
		c.wanted = mine
		c.kickOff()
	}
	for c.over < mine {
		c.ended.Wait()
	}
	if c.good < mine {
		return c.err
	}
	return nil
}

// waitForOldest waits while writes that were answered too long ago are not durable.
func (c *committer) waitForOldest() error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.answer(now) {
		if c.err != nil {
			return c.err
		}
		c.ended.Wait()
		now = time.Now()
	}
	return nil
}

// tryWait is wait for who cannot wait: it says whether that would have returned nil at
// once.
func (c *committer) tryWait() bool {
	switch c.promise {
	case DurabilityAlways:
		return false
	case DurabilityEverySecond:
		now := time.Now()
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answer(now)
	}
	return true
}

// answer notes that a write is answered now, unless older ones are at risk for too
// long. The caller holds mu.
func (c *committer) answer(now time.Time) (ok bool) {
	oldest := c.risked
	if oldest.IsZero() {
		oldest = c.waiting
	}
	if !oldest.IsZero() && now.Sub(oldest) >= mostAtRisk {
		return false
	}
	if c.waiting.IsZero() {
		c.waiting, c.wanted = now, c.begun+1
		c.kickOff()
	}
	return true
}

func (c *committer) kickOff() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// run commits when it is kicked, and a last time when it is to end.
func (c *committer) run() {
	defer close(c.stopped)
	for {
		select {
		case <-c.kick:
		case <-c.ending:
			c.once()
			return
		}
		timer := time.NewTimer(c.delay())
		select {
		case <-timer.C:
		case <-c.ending: // seen again above
			timer.Stop()
		}
		if !c.once() && c.promise == DurabilityEverySecond {
			c.kickOff() // they were answered: they cannot be left so
		}
	}
}

// delay is how long the next commit can wait.
func (c *committer) delay() time.Duration {
	if c.promise != DurabilityEverySecond {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting.IsZero() {
		return commitDelay
	}
	return commitDelay - time.Since(c.waiting)
}

// once commits, if somebody wants that.
func (c *committer) once() (ok bool) {
	c.mu.Lock()
	if c.wanted <= c.begun && c.risked.IsZero() {
		c.mu.Unlock()
		return true
	}
	c.begun++
	if c.risked.IsZero() {
		c.risked = c.waiting
	}
	c.waiting = time.Time{}
	failing := c.err != nil
	c.mu.Unlock()

	err := c.commit(context.Background())
	switch {
	case err != nil && !failing:
		c.log.Error("what was written is not durable", "err", err)
	case err == nil && failing:
		c.log.Info("what was written is durable again")
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.err = c.begun, err
	if err == nil {
		c.good, c.risked = c.begun, time.Time{}
	}
	c.ended.Broadcast()
	return err == nil
}
