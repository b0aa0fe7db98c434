package resp

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Durability is the guarantee of a reply to a write: which writes survive a crash of the
// process or of the machine, and the loss of all tiers but the device's commit point.
type Durability uint8

const (
	// DurabilityNone promises nothing: only commits of the program itself are durable.
	DurabilityNone Durability = iota
	// DurabilityEverySecond promises that at most the last second of answered writes is lost,
	// and that the store is as it was at one moment. The server commits about twice a second
	// while there are writes. If the device is too slow for that, replies to writes wait.
	DurabilityEverySecond
	// DurabilityAlways promises that no answered write is lost. Replies to writes wait for a
	// commit, which waiting connections share.
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

// With DurabilityEverySecond, a commit begins commitDelay after the first answer to a write
// that needs it. Replies to writes wait while an answer is older than mostAtRisk and its write
// is not durable.
const (
	commitDelay = 500 * time.Millisecond
	mostAtRisk  = time.Second
)

// committed is the part of [kv.Store] that the committer uses. A write is durable as soon as
// LastCommit has reached the value that NextCommit had after it.
type committed interface {
	Commit(context.Context) error
	WaitForCommit(ctx context.Context, number uint64) error
	NextCommit() uint64
	LastCommit() uint64
}

// committer commits the store as Options.Durability promises. A connection calls wait before
// it answers a write, with the number of the commit that the write needs. With DurabilityAlways
// the connections commit themselves, otherwise a goroutine does.
type committer struct {
	store   committed
	promise Durability
	log     *slog.Logger
	kick    chan struct{} // holds one element if a commit may be needed
	ending  chan struct{} // closed when there are no connections left
	stopped chan struct{} // closed after the last commit

	mu     sync.Mutex // guards the fields below
	ended  *sync.Cond // on mu: a commit has ended
	err    error      // of the last commit
	failed uint64     // with DurabilityAlways, the number that err is about
	// With DurabilityEverySecond, the answered writes that are not durable, oldest first. Writes
	// that need the same commit have one entry, with the time of the first answer.
	atRisk []answered
}

// answered records replies to writes that need a commit.
type answered struct {
	needs uint64
	at    time.Time
}

func newCommitter(promise Durability, log *slog.Logger) *committer {
	c := &committer{
		promise: promise, log: log,
		kick:    make(chan struct{}, 1),
		ending:  make(chan struct{}),
		stopped: make(chan struct{}),
	}
	c.ended = sync.NewCond(&c.mu)
	return c
}

// start starts committing; stop ends it.
func (c *committer) start() {
	if c.promise != DurabilityEverySecond {
		close(c.stopped)
		return
	}
	go c.run()
}

// stop commits the answered writes that are not durable, and ends. wait must not be called
// afterwards.
func (c *committer) stop() {
	close(c.ending)
	<-c.stopped
}

// state returns the error of the last commit.
func (c *committer) state() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// wait waits until a write that needs commit needs may be answered; 0 needs none. It returns
// an error if the write is not as durable as promised.
func (c *committer) wait(needs uint64) error { return c.waitUntil(context.Background(), needs) }

// waitUntil is wait that, with DurabilityAlways, may end with ctx.
func (c *committer) waitUntil(ctx context.Context, needs uint64) error {
	if c.promise == DurabilityNone || needs == 0 || needs <= c.store.LastCommit() {
		return nil
	}
	if c.promise == DurabilityAlways {
		err := c.store.WaitForCommit(ctx, needs)
		if err != nil && ctx.Err() != nil {
			return err // not that of a commit
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waited(needs, err)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waitForOldest(needs)
}

// waited takes the result of waiting for a commit. Results come in any order: a commit that
// succeeded ends the errors of those before it. The caller must hold mu.
func (c *committer) waited(needs uint64, err error) {
	switch last := c.store.LastCommit(); {
	case err != nil && last < needs:
		c.failed = max(c.failed, needs)
		c.result(err)
	case last >= c.failed:
		c.result(nil)
	}
}

// result takes the result of a commit. The caller must hold mu.
func (c *committer) result(err error) {
	switch {
	case err != nil && c.err == nil:
		c.log.Error("writes are not durable", "err", err)
	case err == nil && c.err != nil:
		c.log.Info("writes are durable again")
	}
	c.err = err
}

// waitForOldest waits while an answered write is not durable and its answer is older than
// mostAtRisk. The caller must hold mu.
func (c *committer) waitForOldest(needs uint64) error {
	for !c.answer(needs, time.Now()) {
		if c.err != nil {
			return c.err
		}
		c.ended.Wait()
	}
	return nil
}

// commits reports whether a loop waits for a commit. It does not while commits fail, as each takes
// long then.
func (c *committer) commits(needs uint64) bool {
	return c.promise == DurabilityAlways && needs > c.store.LastCommit() && c.state() == nil
}

// tryWait reports whether wait would return nil at once.
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

// answer records the answer to a write. It returns false if an answered write is not durable
// and its answer too old. The caller must hold mu.
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

// forget removes durable writes from atRisk. The caller must hold mu.
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

// run commits after each kick, and a last time at its end.
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
		case <-c.ending: // checked again above
			timer.Stop()
		}
		if c.once() {
			c.kickOff()
		}
	}
}

// delay returns the time until the next commit.
func (c *committer) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(c.atRisk) == 0 {
		return commitDelay
	}
	return commitDelay - time.Since(c.atRisk[0].at)
}

// once commits if a commit is needed, and reports whether another one is.
func (c *committer) once() (more bool) {
	c.mu.Lock()
	c.forget()
	needed := len(c.atRisk) > 0
	c.mu.Unlock()
	if !needed {
		return false
	}
	err := c.store.Commit(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result(err)
	c.forget()
	c.ended.Broadcast()
	return len(c.atRisk) > 0
}
