package resp

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// With DurabilityEverySecond a commit begins so long after the first answer to a write
// that it is for, and replies wait when one was given so long ago and is for a write that
// no commit covers.
const (
	commitDelay = 500 * time.Millisecond
	mostAtRisk  = time.Second
)

// committed is what the committer needs of a store: [kv.Store]. A write is known by
// what NextCommit was after it, and durable as soon as LastCommit has reached that.
type committed interface {
	Commit(context.Context) error
	NextCommit() uint64
	LastCommit() uint64
}

// committer has the store commit, so that answers to writes come with the
// durability that was promised. Whoever answers a write calls wait before, with the
// number of the commit that the write needs.
type committer struct {
	store   committed
	promise Durability
	log     *slog.Logger
	kick    chan struct{} // holds one if there may be something to commit
	ending  chan struct{} // closed when nobody writes any more
	stopped chan struct{} // closed when no commit follows

	mu     sync.Mutex // guards what follows
	ended  *sync.Cond // on mu: a commit has ended
	begun  uint64     // commits that have begun, one at a time
	over   uint64     // of them, those that have ended
	wanted uint64     // the store's LastCommit that somebody waits for
	err    error      // of the last one
	// With DurabilityEverySecond, the writes that were answered and are not durable, the
	// oldest first: of those that need the same commit, the first answer.
	atRisk []answered
}

// answered is an answer to writes that need a commit.
type answered struct {
	needs uint64
	at    time.Time
}

func newCommitter(store committed, promise Durability, log *slog.Logger) *committer {
	c := &committer{
		store: store, promise: promise, log: log,
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

// wait returns when a write that needs that commit may be answered; 0: it needs none. An
// error says that it is not as durable as promised.
func (c *committer) wait(needs uint64) error {
	if c.promise == DurabilityNone || needs <= c.store.LastCommit() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.promise == DurabilityAlways {
		return c.waitForCommit(needs)
	}
	return c.waitForOldest(needs)
}

// waitForCommit waits until the write is durable, or a commit fails that began from now
// on. The caller holds mu.
func (c *committer) waitForCommit(needs uint64) error {
	mine := c.begun + 1
	c.wanted = max(c.wanted, needs)
	c.kickOff()
	for c.store.LastCommit() < needs {
		if c.over >= mine && c.err != nil {
			return c.err
		}
		c.ended.Wait()
	}
	return nil
}

// waitForOldest waits while writes that were answered too long ago are not durable. The
// caller holds mu.
func (c *committer) waitForOldest(needs uint64) error {
	for !c.answer(needs, time.Now()) {
		if c.err != nil {
			return c.err
		}
		c.ended.Wait()
	}
	return nil
}

// tryWait is wait for who cannot wait: it says whether that would have returned nil at
// once.
func (c *committer) tryWait(needs uint64) bool {
	switch {
	case c.promise == DurabilityNone || needs <= c.store.LastCommit():
		return true
	case c.promise == DurabilityAlways:
		return false
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer(needs, now)
}

// answer notes that a write is answered now, unless older ones are at risk for too
// long. The caller holds mu.
func (c *committer) answer(needs uint64, now time.Time) (ok bool) {
	c.forget()
	n := len(c.atRisk)
	if n > 0 && now.Sub(c.atRisk[0].at) >= mostAtRisk {
		return false
	}
	if n == 0 || c.atRisk[n-1].needs < needs {
		c.atRisk = append(c.atRisk, answered{needs, now})
	}
	if n == 0 {
		c.kickOff()
	}
	return true
}

// forget drops from atRisk what is durable. The caller holds mu.
func (c *committer) forget() {
	last, n := c.store.LastCommit(), 0
	for n < len(c.atRisk) && c.atRisk[n].needs <= last {
		n++
	}
	c.atRisk = slices.Delete(c.atRisk, 0, n)
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
		if c.once() {
			c.kickOff() // they were answered: they cannot be left so
		}
	}
}

// delay is how long the next commit can wait.
func (c *committer) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.promise != DurabilityEverySecond:
		return 0
	case c.err != nil || len(c.atRisk) == 0:
		return commitDelay
	}
	return commitDelay - time.Since(c.atRisk[0].at)
}

// once commits, if somebody wants that, and says whether there are answers to writes
// that need another commit.
func (c *committer) once() (more bool) {
	c.mu.Lock()
	c.forget()
	if c.wanted <= c.store.LastCommit() && len(c.atRisk) == 0 {
		c.mu.Unlock()
		return false
	}
	c.begun++
	failing := c.err != nil
	c.mu.Unlock()

	err := c.store.Commit(context.Background())
	switch {
	case err != nil && !failing:
		c.log.Error("what was written is not durable", "err", err)
	case err == nil && failing:
		c.log.Info("what was written is durable again")
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.err = c.begun, err
	c.forget()
	c.ended.Broadcast()
	return len(c.atRisk) > 0
}
