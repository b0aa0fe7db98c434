package resp

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/kv/resp/internal/poll"
)

// A goroutine for each connection waits wherever it has to. But where commands come one
// at a time it is woken for each, on whichever processor, and that costs more than the
// command: with the client on the same two processors, a quarter of the throughput. So
// plain connections are served by loops, one goroutine for many connections, which looks
// at all that have something, carries their commands out, and then sends all replies.
//
// A loop never waits for one of its connections. Whatever could make it wait, or keep it
// busy for long, has the connection leave for a goroutine, from where it comes back when
// it has sent plain commands for a while:
//
//   - commands that are not plain: on the whole store, in transactions, many keys;
//   - replies that are long, or that the client does not take at once, or that wait for
//     a commit or for room;
//   - reads of a store that has to ask its device for many records.

// A loop that has nothing to do looks for more for a while, then sleeps with its
// processor for up to heldWait milliseconds, and then lets others have that. Finding it
// awake saves a client up to half of what its command costs. But where both never sleep,
// the kernel's threads take their time from them, 0.1 ms and more at once. With a few
// connections that is the 99th percentile; one alone is in their way less often, and many
// wait longer for one another.
const (
	spinFor    = 20 * time.Microsecond
	spinForFew = 5 * time.Microsecond
	fewConns   = 16 // 2 to so many are few
	heldWait   = 1
)

// Go's scheduler stops whatever has run for 10 ms, and wakes a thread that looks for
// other work: for a loop with replies to send that is a delay of 0.1 ms, fifty times a
// second. It does not stop a loop that gives way before, where it has nothing to do.
const giveWayEvery = 9 * time.Millisecond

// Bounds of what is plain: arguments of a command, bytes of a batch's replies; and
// batches of plain commands after which a connection comes back to a loop.
const (
	plainArgs    = 64
	plainReplies = 128 << 10
	plainBatches = 64
)

// Records a second fetched from the device, above which commands are not for loops.
const coldReads = 1000

// loop is one of them. All but what mu guards belongs to its goroutine.
type loop struct {
	server *Server
	poller poll.Poller
	ready  []*client
	conns  map[int32]*client // by their files
	swept  time.Time         // when all of them were looked at last
	gave   time.Time         // when it let the scheduler have its processor last
	done   chan struct{}     // closed when it has ended

	mu     sync.Mutex // guards what follows; whoever changes it wakes the poller
	coming []*client
	ending bool
}

func newLoop(s *Server) (*loop, error) {
	p, err := poll.New()
	if err != nil {
		return nil, fmt.Errorf("resp: poller: %w", err)
	}
	return &loop{server: s, poller: p, conns: make(map[int32]*client), done: make(chan struct{})}, nil
}

// tell has the loop look at what changed under mu.
func (l *loop) tell(change func()) {
	l.mu.Lock()
	change()
	l.mu.Unlock()
	if err := l.poller.Wake(); err != nil {
		l.server.opts.Logger.Error("waking a loop", "err", err)
	}
}

// stop ends the loop, which has no connections any more.
func (l *loop) stop() {
	l.tell(func() { l.ending = true })
	<-l.done
}

func (l *loop) run() {
	defer close(l.done)
	defer l.poller.Close()
	for {
		ready, told := l.wait()
		now := time.Now()
		for _, fd := range ready {
			if c := l.conns[fd]; c != nil {
				l.serve(c, now)
			}
		}
		for i, c := range l.ready {
			l.ready[i] = nil
			l.answer(c)
		}
		l.ready = l.ready[:0]
		if told && l.takeIn(now) {
			return
		}
		if now.Sub(l.swept) >= l.server.sweepEvery() {
			l.sweep(now)
		}
	}
}

// wait returns the files of connections that have something, and whether the loop was
// told to look. It sleeps no longer than until the next sweep.
func (l *loop) wait() (ready []int32, told bool) {
	timeout := -1
	if len(l.conns) > 0 {
		timeout = int(l.server.sweepEvery()/time.Millisecond) + 1
	}
	held := len(l.conns) > 0 && runtime.GOMAXPROCS(0) > 1
	spins, spin := held, spinFor
	if n := len(l.conns); n > 1 && n <= fewConns {
		spin = spinForFew
	}
	var began time.Time // of the look around; where something is there already, nobody looks at the clock
	for {
		var err error
		switch {
		case spins:
			ready, told, err = l.poller.WaitHeld(0)
		case held:
			ready, told, err = l.poller.WaitHeld(heldWait)
		default:
			ready, told, err = l.poller.Wait(timeout)
		}
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			l.server.opts.Logger.Error("waiting for clients", "err", err)
			return nil, false
		case told || len(ready) > 0 || err == nil && !held:
			return ready, told
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

// giveWay lets other goroutines have the processor, if that is due. Where each processor
// has a loop, the scheduler is left to stop them: it is fairer to those that wait for any.
func (l *loop) giveWay(now time.Time) {
	if now.Sub(l.gave) >= giveWayEvery && l.server.opts.Loops < runtime.GOMAXPROCS(0) {
		l.gave = now
		poll.Yield()
	}
}

// takeIn looks at what it was told, and says whether to end.
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
		// The server may have told all clients to end before this one was here.
		if l.server.closing.Load() {
			l.end(c)
		}
	}
	return end
}

// remove forgets a connection.
func (l *loop) remove(c *client) {
	fd := c.looped.File()
	delete(l.conns, int32(fd))
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

// promote gives a connection, as it is, a goroutine.
func (l *loop) promote(c *client) {
	l.remove(c)
	if err := c.looped.Attach(); err != nil {
		l.server.opts.Logger.Error("giving a client a goroutine", "client", c.id, "err", err)
		l.server.leave(c)
		return
	}
	go l.server.resume(c)
}

// serve reads what has come over a connection, and carries it out.
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
	if c.worker = l.server.pool.tryBorrow(); c.worker == nil {
		l.promote(c)
		return
	}
	if l.server.pool.largest.Load() > largeValues {
		c.worker.limit = min(c.worker.limit, wariness)
	}
	c.execute()
	l.ready = append(l.ready, c)
}

// answer sends the replies of a batch.
func (l *loop) answer(c *client) {
	if c.holds || c.quit {
		l.promote(c)
		return
	}
	switch done, err := c.tryWrite(); {
	case err != nil:
		l.end(c)
	case !done || c.interrupted():
		l.promote(c)
	case l.server.closing.Load():
		l.end(c)
	}
}

// sweep ends the connections that have been idle for too long, and takes large
// buffers from those that keep us waiting.
func (l *loop) sweep(now time.Time) {
	s := l.server
	l.swept = now
	s.lookForCold(now)
	for _, c := range l.conns {
		switch idle := now.Sub(c.seen); {
		case s.opts.IdleTimeout > 0 && idle > s.opts.IdleTimeout:
			s.counts.idle.Add(1)
			l.end(c)
		case idle > s.opts.releaseAfter && (len(c.in.buf) > restingBuffer || cap(c.out) > restingOutput):
			c.in.shrink()
			c.out = nil
			c.charge()
		}
	}
}

// sweepEvery is how often that is worthwhile.
func (s *Server) sweepEvery() time.Duration {
	every := s.opts.releaseAfter / 2
	if idle := s.opts.IdleTimeout / 2; idle > 0 {
		every = min(every, idle)
	}
	return max(every, time.Millisecond)
}

// startLoops starts the loops. Where they cannot be had there are none.
func (s *Server) startLoops() {
	for range s.opts.Loops {
		l, err := newLoop(s)
		if err != nil {
			s.opts.Logger.Warn("connections have a goroutine each", "err", err)
			return
		}
		go l.run()
		s.loops = append(s.loops, l)
	}
}

// enroll gives a connection that is at rest to a loop, if it is fit for that.
func (s *Server) enroll(c *client) bool {
	if len(s.loops) == 0 || c.looped == nil || s.cold.Load() || c.quit || !c.atRest() || s.closing.Load() {
		return false
	}
	if c.looped.Detach() != nil { // it is ending
		return false
	}
	c.plain, c.readUntil, c.writeUntil = 0, time.Time{}, time.Time{}
	l := s.loops[uint64(c.id)%uint64(len(s.loops))]
	l.tell(func() { l.coming = append(l.coming, c) })
	return true
}

// atRest says whether nothing is under way that a loop does not know.
func (c *client) atRest() bool {
	return len(c.out) == 0 && c.multi == nil && !c.enlisted && c.worker == nil && !c.holds && c.in.empty()
}

// plainly says whether a loop may carry a command out.
func (cmd *command) plainly() bool {
	switch cmd.name {
	case "msetnx", "rename", "renamenx", "copy", "restore":
		return false // they lock their keys, or take long
	}
	switch cmd.group {
	case groupString, groupHash, groupGeneric, groupConnection:
		return cmd.flags&(flagSolo|flagAdmin|flagAtOnce) == 0
	}
	return false
}

// lookForCold finds out, about once a second, whether the store asks its device for
// many records, or waits for it with new ones.
func (s *Server) lookForCold(now time.Time) {
	if last := s.looked.Load(); now.UnixNano()-last < int64(time.Second) || !s.looked.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	m := s.store.Metrics()
	reads, evictions := s.deviceReads.Swap(m.Device.Reads), s.evictions.Swap(m.Log.Evictions)
	s.cold.Store(m.Device.Reads-reads > coldReads || m.Log.Evictions != evictions)
}

// resume goes on with a connection that has left a loop.
func (s *Server) resume(c *client) {
	if s.closing.Load() {
		// It may have been told to end as the loop's.
		if err := c.conn.SetReadDeadline(longAgo); err != nil {
			s.opts.Logger.Debug("ending a client", "client", c.id, "err", err)
		}
	}
	c.write()
	c.execute()
	c.write()
	c.quit = c.quit || c.mayEnd()
	if !c.serve() {
		s.leave(c)
	}
}
