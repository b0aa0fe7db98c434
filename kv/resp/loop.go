package resp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/kv/resp/internal/poll"
)

// Connections with simple commands are served by loops, which cost less than a goroutine per
// connection (DECISIONS.md). A loop is one goroutine for many connections: it reads from all
// that have input, runs their commands, then sends all replies.
//
// A loop never waits for one of its connections, but it does for the device: with DurabilityAlways
// it commits once for all replies to writes that it has. The next commands arrive meanwhile. While
// a device does not answer, nothing on the loop is answered; new connections have goroutines. While
// commits fail, connections with writes do, and the loop goes on.
//
// A connection that could make the loop wait, or keep it busy for long, moves to its own goroutine,
// and returns after it has sent simple commands for a while. Reasons to move are
//
//   - commands that are not simple: on the whole store, in transactions, on many keys;
//   - replies and messages that are long, that the client does not read at once, or that wait for memory or for
//     the commits of DurabilityEverySecond;
//   - reads of a store that fetches many records from its device.

// A loop without input spins for a short time, then sleeps while keeping its processor for up
// to heldWait milliseconds, then gives the processor up. A loop that is awake saves a client
// up to half of the cost of a command. But if neither the loop nor its clients sleep, kernel
// threads interrupt them, for 0.1 ms and more. With a few connections that is the 99th
// percentile, so the loop spins less; with one connection, spinning rarely delays kernel
// threads; with many, connections wait longer for each other anyway.
const (
	spinFor    = 20 * time.Microsecond
	spinForFew = 5 * time.Microsecond
	fewConns   = 16 // 2 to 16 connections are few
	heldWait   = 1
)

// giveWayEvery is how often a loop without input yields. Go's scheduler would preempt it after
// 10 ms, perhaps before it sends replies, and delay them by 0.1 ms.
const giveWayEvery = 9 * time.Millisecond

// Limits of simple commands.
const (
	plainArgs    = 64        // arguments of a command
	plainReplies = 128 << 10 // bytes of a batch's replies
	plainBatches = 64        // batches of simple commands after which a connection returns to a loop
)

// If a store fetches more records a second from its device, loops take no connections.
const coldReads = 1000

// loop serves connections. Its goroutine owns all fields except those that mu guards.
type loop struct {
	server  *Server
	poller  poll.Poller
	ready   []*client     // their batches have run, their replies are not sent
	held    int64         // bytes of their replies that are still to be charged
	pushing []*subscriber // taken from due; pushing[pushed:] are still to be served
	pushed  int
	conns   map[int32]*client // by file descriptor
	swept   time.Time         // time of the last sweep
	gave    time.Time         // time of the last yield
	done    chan struct{}     // closed at its end
	since   atomic.Int64      // Unix time in ns since when it waits for the device, or 0; read by others

	mu     sync.Mutex    // guards coming, ending and due; after a change, the poller is woken
	coming []*client     // connections for this loop
	ending bool          // the loop must end
	due    []*subscriber // connections with messages to send
	hasDue atomic.Bool   // due is not empty
}

func newLoop(s *Server) (*loop, error) {
	p, err := poll.New()
	if err != nil {
		return nil, fmt.Errorf("resp: poller: %w", err)
	}
	return &loop{server: s, poller: p, conns: make(map[int32]*client), done: make(chan struct{})}, nil
}

// post makes a change under mu and wakes the loop.
func (l *loop) post(change func()) {
	l.mu.Lock()
	change()
	l.mu.Unlock()
	l.wake()
}

// wake ends the current wait, or the next one.
func (l *loop) wake() {
	if err := l.poller.Wake(); err != nil {
		l.server.opts.Logger.Error("waking a loop", "err", err)
	}
}

// stop ends the loop, which has no connections left.
func (l *loop) stop() {
	l.post(func() { l.ending = true })
	<-l.done
}

func (l *loop) run() {
	defer close(l.done)
	defer l.poller.Close()
	for {
		ready, woken := l.wait()
		now := time.Now()
		for _, fd := range ready {
			if c := l.conns[fd]; c != nil {
				l.serve(c, now)
			}
		}
		l.answerAll()
		l.pushSome()
		now = time.Now() // it may have waited for the device
		if woken && l.takeIn(now) {
			return
		}
		if now.Sub(l.swept) >= l.server.sweepEvery() {
			l.sweep(now)
		}
	}
}

// wait returns the files of connections with input, and whether the loop was woken. It sleeps
// until the next sweep at most, and not at all if there are messages to send.
func (l *loop) wait() (ready []int32, woken bool) {
	timeout := -1
	if l.pushed < len(l.pushing) || l.hasDue.Load() {
		timeout = 0
	} else if len(l.conns) > 0 {
		timeout = int(l.server.sweepEvery()/time.Millisecond) + 1
	}
	held := timeout != 0 && len(l.conns) > 0 && runtime.GOMAXPROCS(0) > 1
	spins, spin := held, spinFor
	if n := len(l.conns); n > 1 && n <= fewConns {
		spin = spinForFew
	}
	var began time.Time // of the spinning; not set if there is input at once
	for {
		var err error
		switch {
		case spins:
			ready, woken, err = l.poller.WaitHeld(0)
		case held:
			ready, woken, err = l.poller.WaitHeld(heldWait)
		default:
			ready, woken, err = l.poller.Wait(timeout)
		}
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			l.server.opts.Logger.Error("waiting for clients", "err", err)
			return nil, false
		case woken || len(ready) > 0 || err == nil && !held:
			return ready, woken
		}
		switch {
		case !spins:
			held = false
		case began.IsZero():
			began = time.Now()
		default:
			now := time.Now()
			if spins = now.Sub(began) < spin; !spins {
				l.giveWay(now)
			}
		}
	}
}

// giveWay yields the processor to other goroutines if the last yield is giveWayEvery ago. If
// each processor has a loop, preemption is left to the scheduler, which is fairer to
// goroutines that wait for any processor.
func (l *loop) giveWay(now time.Time) {
	if now.Sub(l.gave) >= giveWayEvery && l.server.opts.Loops < runtime.GOMAXPROCS(0) {
		l.gave = now
		poll.Yield()
	}
}

// takeIn takes over new connections, and reports whether the loop must end.
func (l *loop) takeIn(now time.Time) (end bool) {
	l.mu.Lock()
	coming := l.coming
	l.coming, end = nil, l.ending
	l.mu.Unlock()
	for _, c := range coming {
		c.loop, c.seen = l, now
		fd := c.looped.File()
		if err := l.poller.Add(fd); err != nil {
			l.server.opts.Logger.Error("adding a client to a loop", "client", c.id, "err", err)
			c.loop = nil
			c.looped.HangUp()
			l.server.leave(c)
			continue
		}
		l.conns[int32(fd)] = c
		// The server may have set its clients' deadlines before this connection arrived.
		switch {
		case l.server.closing.Load():
			l.end(c)
		case c.sub != nil && c.sub.ownedBy(l):
			l.answer(c)
		}
	}
	return end
}

// remove removes a connection from the loop.
func (l *loop) remove(c *client) {
	fd := c.looped.File()
	delete(l.conns, int32(fd))
	if c.sub != nil {
		c.sub.ownedBy(nil)
	}
	if err := l.poller.Remove(fd); err != nil {
		l.server.opts.Logger.Error("removing a client from a loop", "client", c.id, "err", err)
	}
	c.loop = nil
}

// end ends a connection.
func (l *loop) end(c *client) {
	l.remove(c)
	c.looped.HangUp()
	l.server.leave(c)
}

// promote moves a connection, in its present state, to a goroutine.
func (l *loop) promote(c *client) {
	l.remove(c)
	if err := c.looped.Attach(); err != nil {
		l.server.opts.Logger.Error("giving a client a goroutine", "client", c.id, "err", err)
		l.server.leave(c)
		return
	}
	go l.server.resume(c)
}

// serve reads from a connection and runs its commands.
func (l *loop) serve(c *client, now time.Time) {
	c.seen = now
	err := c.in.fill()
	switch {
	case errors.Is(err, poll.ErrWouldBlock):
		return
	case errors.Is(err, errTooMuchInput), err == nil && l.server.cold.Load():
		l.promote(c)
		return
	case err != nil:
		l.end(c)
		return
	}
	l.server.counts.in.Add(uint64(c.in.last))
	// Messages that were published before the commands arrived precede their replies.
	switch done, err := c.tryPush(); {
	case err != nil:
		l.end(c)
		return
	case !done:
		l.promote(c)
		return
	}
	if c.worker = l.server.pool.tryBorrow(); c.worker == nil {
		l.promote(c)
		return
	}
	if l.server.pool.largest.Load() > largeValues {
		c.worker.limit = min(c.worker.limit, cautiousBatch)
	}
	c.execute()
	l.ready = append(l.ready, c)
	if l.held += max(int64(cap(c.out)-restingOutput)-c.output.charged.Load(), 0); l.held >= batchBytes {
		l.answerAll()
	}
}

// answerAll sends the replies of all batches. Those that wait for a commit share one.
func (l *loop) answerAll() {
	needs := uint64(0)
	waiting := l.ready[:0]
	for _, c := range l.ready {
		if l.server.committer.commits(c.needs) {
			needs = max(needs, c.needs)
			waiting = append(waiting, c)
		} else {
			l.answer(c)
		}
	}
	if len(waiting) > 0 {
		began := time.Now()
		l.since.Store(began.UnixNano())
		// After an error the connections move to goroutines, which answer with it. They also do if the commit
		// waits for a script: the loop's other connections are served meanwhile.
		ctx, cancel := context.WithTimeout(context.Background(), longestStand)
		_ = l.server.committer.waitUntil(ctx, needs)
		cancel()
		l.since.Store(0)
		l.stood(time.Since(began))
		for _, c := range waiting {
			l.answer(c)
		}
	}
	clear(l.ready)
	l.ready, l.held = l.ready[:0], 0
}

// longestStand is how long a loop waits for a commit that waits for others.
const longestStand = time.Second

// stands reports whether the loop waits for the device for longer than a commit takes. Others call it.
func (l *loop) stands() bool {
	since := l.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > 100*time.Millisecond
}

// stood keeps connections from being taken for idle for the time for which the loop stood still.
func (l *loop) stood(still time.Duration) {
	if still < 10*time.Millisecond {
		return // no time-out is that short
	}
	for _, c := range l.conns {
		c.seen = c.seen.Add(still)
	}
}

// answer sends the replies of a batch.
func (l *loop) answer(c *client) {
	if c.holds || c.quit {
		l.promote(c)
		return
	}
	done, err := c.tryWrite()
	if done || err != nil {
		c.noteSent()
	}
	switch {
	case err != nil:
		l.end(c)
	case !done || c.interrupted():
		l.promote(c)
	case l.server.closing.Load():
		l.end(c)
	}
}

// enqueue notes that a connection of the loop has messages to send. It reports whether the loop
// must be woken for that.
func (l *loop) enqueue(sub *subscriber) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = len(l.due) == 0
	l.due = append(l.due, sub)
	l.hasDue.Store(true)
	return first
}

// pushesAtOnce is the most connections to which a loop sends messages before it looks for
// input.
const pushesAtOnce = 128

// pushSome sends messages to the next connections that are due.
func (l *loop) pushSome() {
	if l.pushed == len(l.pushing) && l.hasDue.Load() {
		l.mu.Lock()
		l.pushing, l.due = l.due, l.pushing[:0]
		l.hasDue.Store(false)
		l.mu.Unlock()
		l.pushed = 0
	}
	for range min(len(l.pushing)-l.pushed, pushesAtOnce) {
		sub := l.pushing[l.pushed]
		l.pushing[l.pushed] = nil
		l.pushed++
		if sub.isOwnedBy(l) {
			l.answer(sub.client)
		}
	}
}

// sweep ends connections that have been idle for too long, and frees large buffers of other
// idle ones.
func (l *loop) sweep(now time.Time) {
	s := l.server
	l.swept = now
	s.checkCold(now)
	for _, c := range l.conns {
		switch idle := now.Sub(c.seen); {
		case s.opts.IdleTimeout > 0 && idle > s.opts.IdleTimeout && !c.subscribing():
			s.counts.idle.Add(1)
			l.end(c)
		case idle > s.opts.releaseAfter && (c.in.roomy() || cap(c.out) > restingOutput):
			c.in.shrink()
			c.out = nil
			c.charge()
		}
	}
}

// sweepEvery is the time between two sweeps.
func (s *Server) sweepEvery() time.Duration {
	every := s.opts.releaseAfter / 2
	if idle := s.opts.IdleTimeout / 2; idle > 0 {
		every = min(every, idle)
	}
	return max(every, time.Millisecond)
}

// start starts the committer and the loops. If a loop fails, each connection has a goroutine.
func (s *Server) start() {
	s.committer.start()
	for range s.opts.Loops {
		l, err := newLoop(s)
		if err != nil {
			s.opts.Logger.Warn("starting a loop: connections have a goroutine each", "err", err)
			return
		}
		go l.run()
		s.loops = append(s.loops, l)
	}
}

// enroll moves a connection to a loop, if there is one for it and nothing is pending on the
// connection.
func (s *Server) enroll(c *client) bool {
	if s.loading.on.Load() || len(s.loops) == 0 || c.looped == nil || c.quit || !c.atRest() || s.closing.Load() {
		return false
	}
	if s.cold.Load() { // loops without connections do not find out that it has ended
		if s.checkCold(time.Now()); s.cold.Load() {
			return false
		}
	}
	l := s.loops[uint64(c.id)%uint64(len(s.loops))]
	if l.stands() { // an operator who connects meanwhile is served
		return false
	}
	if c.looped.Detach() != nil { // the connection is ending
		return false
	}
	c.plain, c.readUntil, c.writeUntil = 0, time.Time{}, time.Time{}
	l.post(func() { l.coming = append(l.coming, c) })
	return true
}

// atRest reports whether the connection has no state that loops do not handle.
func (c *client) atRest() bool {
	return len(c.out) == 0 && c.multi == nil && !c.enlisted && c.worker == nil && !c.holds && c.waits == nil && c.in.empty()
}

// plainly reports whether a loop may run a command.
func (cmd *command) plainly() bool {
	switch cmd.name {
	case "msetnx", "rename", "renamenx", "copy", "move", "restore", "smove", "lmove", "rpoplpush", "zrangestore",
		"sinter", "sinterstore", "sunion", "sunionstore", "sdiff", "sdiffstore", "bitop", "lcs":
		return false // these lock their keys, or take long
	}
	if cmd.keys.count > 0 || cmd.keys.patterns {
		return false // these too
	}
	switch cmd.group {
	case groupPubSub:
		return !strings.HasPrefix(cmd.name, "pubsub") // which may list many names
	case groupString, groupBitmap, groupHash, groupSet, groupList, groupSorted, groupGeneric, groupConnection:
		return cmd.flags&(flagSolo|flagAdmin|flagAtOnce) == 0
	}
	return false
}

// checkCold determines, about once a second, whether the store reads many records from its
// device, or evicts, which writes may wait for. With DurabilityAlways all of the log is on the
// device soon, and is evicted without a wait.
func (s *Server) checkCold(now time.Time) {
	if last := s.coldAt.Load(); now.UnixNano()-last < int64(time.Second) || !s.coldAt.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	m := s.store.Metrics()
	reads, evictions := s.deviceReads.Swap(m.Device.Reads), s.evictions.Swap(m.Log.Evictions)
	evicts := m.Log.Evictions != evictions && s.opts.Durability != DurabilityAlways
	s.cold.Store(m.Device.Reads-reads > coldReads || evicts)
}

// resume continues a connection that has left a loop.
func (s *Server) resume(c *client) {
	if s.closing.Load() {
		// The deadline may have been set while the loop owned the connection.
		if err := c.conn.SetReadDeadline(longAgo); err != nil {
			s.opts.Logger.Debug("ending a client", "client", c.id, "err", err)
		}
	}
	c.write()
	c.noteSent()
	c.execute()
	c.write()
	c.noteSent()
	c.quit = c.quit || c.mayEnd()
	if !c.serve() {
		s.leave(c)
	}
}
