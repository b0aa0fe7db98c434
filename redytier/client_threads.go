package redytier

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/fabric/tcp"
)

// clients are a cache's client threads (R40): c threads, each with a session, behind the
// callback API.
//
// A new configuration replaces all of them: a new set is published, the old one executes its
// queued calls, and the new one starts when the old one has ended. So the calls of a handle
// keep their order when its thread changes, and none is lost: calls meanwhile wait in the new
// rings.
type clients struct {
	cache     *Cache
	own       *Client // of Cache.Read and so on
	pins      *affinity.Set
	threadSet atomic.Pointer[threadSet]
	next      atomic.Uint32 // number of handles so far

	mu      sync.Mutex // guards stopped and changes of threadSet
	stopped bool
	splits  sync.RWMutex // read: calls are being split; write: rings are being closed
}

// threadSet is the set of threads of one configuration.
type threadSet struct {
	threads []*clientThread
	routing *routing // nil: every thread serves all VMs
	fits    fit      // zero: the cache had no memory
}

// fit is what a set of threads is made for.
type fit struct {
	configuration Configuration
	transport     string
}

// fit returns what the client threads should be made for. It is zero if the cache has no memory.
func (c *Cache) fit() fit {
	t := c.table.Load()
	if len(t.grants()) == 0 {
		return fit{}
	}
	return fit{t.configuration, c.Transport()}
}

func newClients(c *Cache) (*clients, error) {
	pins, err := affinity.Near(affinity.Mode(c.cfg.Tuning.Pinning))
	if err != nil {
		return nil, err
	}
	k := &clients{cache: c, pins: pins}
	k.own = k.handle()
	first, err := k.newThreads(c.Configuration())
	if err != nil {
		return nil, err
	}
	k.threadSet.Store(first)
	first.start()
	return k, nil
}

func (k *clients) handle() *Client { return &Client{clients: k, number: k.next.Add(1) - 1} }

// newThreads makes a set of threads, with a session each, that do not run yet. The caller
// passes the set to replace, or calls discard.
func (k *clients) newThreads(c Configuration) (*threadSet, error) {
	set := &threadSet{routing: newRouting(k.cache, c.ClientThreads)}
	if now := k.cache.fit(); now != (fit{}) {
		set.fits = fit{c, now.transport}
	}
	for range c.ClientThreads {
		s, err := k.cache.NewSession(min(c.BatchSize*c.QueueDepth, MaxDepth))
		if err != nil {
			return nil, errors.Join(err, set.discard())
		}
		set.threads = append(set.threads, newClientThread(k, s))
	}
	k.plan(set)
	return set, nil
}

// plan notes that the sessions of a set will need the connections and regions of the current one,
// so that they get them when endpoints are added and regions move.
func (k *clients) plan(next *threadSet) {
	now := k.threadSet.Load()
	if now == nil {
		return
	}
	c := k.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for region, r := range c.table.Load().regions.all() {
		connected, used := false, false
		for _, t := range now.threads {
			if l := t.session.links[r.endpoint]; l != nil {
				_, uses := l.uses[r.index]
				connected, used = true, used || uses
			}
		}
		for i, t := range next.threads {
			if !connected || !next.serves(i, int64(region)) {
				continue
			}
			if l := t.session.link(r.endpoint); used {
				l.uses[r.index] = use{region, planned}
			}
		}
	}
}

// accompany makes a place that a session of the application uses usable for a client thread, so
// that readsWell can read there, unless a thread can read at that endpoint already. It tries once,
// and does not block.
func (k *clients) accompany(s *Session, p place) {
	c := k.cache
	set, t := k.threadSet.Load(), c.table.Load()
	own := set.thread(k.own.number, int64(p.region)<<t.shift).session
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range set.threads {
		l := o.session.links[p.endpoint]
		if o.session == s || l != nil && (l.working || l.trying || l.reads(p.endpoint, t)) {
			return
		}
	}
	l := own.link(p.endpoint)
	l.trying = true
	c.background.Go(func() {
		if err := c.prepare(c.ctx, own, p.endpoint, []place{p}, c.cfg.reconnect); err != nil {
			c.log.Info("no connection of a client thread", "vm", p.endpoint.grant.vm, "err", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		l.trying = false
	})
}

// reads reports whether the session can read a region of an endpoint at once. It is called under
// Cache.mu.
func (l *link) reads(e *endpoint, t *table) bool {
	if e.ringed() {
		return l.conn != nil
	}
	for index, u := range l.uses {
		if u.stage == usable && u.region < t.regions.len() {
			if r := t.regions.at(u.region); r.endpoint == e && r.index == index {
				return true
			}
		}
	}
	return false
}

// reader returns a handle whose thread has a connection to a region of a grant, and the region's
// number, or nil. It prefers a region that the thread has imported.
func (k *clients) reader(g *grant) (reader *Client, region int) {
	c := k.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	set, t := k.threadSet.Load(), c.table.Load()
	for _, n := range t.on(g) {
		r := t.regions.at(n)
		for i := range set.threads {
			l := set.thread(uint32(i), int64(n)<<t.shift).session.links[r.endpoint]
			if l == nil || l.conn == nil {
				continue
			}
			ready := r.endpoint.ringed() || l.uses[r.index].stage == usable
			if ready || reader == nil {
				reader, region = &Client{clients: k, number: uint32(i)}, n
			}
			if ready {
				return reader, region
			}
		}
	}
	return reader, region
}

// outdatedThreads reports whether the client threads are not made for the cache as it is: it had no
// memory, or was allocated again with another configuration. While memory is lost they stay.
func (c *Cache) outdatedThreads() bool {
	now := c.fit()
	return now != (fit{}) && c.Err() == nil && c.clients.threadSet.Load().fits != now
}

// renew replaces threads that are outdated.
func (k *clients) renew(ctx context.Context) error {
	if !k.cache.outdatedThreads() {
		return nil
	}
	next, err := k.newThreads(k.cache.Configuration())
	if err != nil {
		return err
	}
	return k.replace(ctx, next)
}

// replace makes a set the current one, and waits for the callbacks of the former set. If ctx
// ends before, the new set still starts after the last of them.
func (k *clients) replace(ctx context.Context, next *threadSet) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errors.Join(ErrDeleted, next.discard())
	}
	before := k.threadSet.Swap(next)
	ended := make(chan error, 1)
	go func() {
		ended <- before.end()
		next.start()
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("callbacks of the former client threads: %w", context.Cause(ctx))
	}
}

// stop ends the threads. Their calls end with ErrDeleted first, since the cache is deleted.
func (k *clients) stop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	return k.threadSet.Load().end()
}

func (w *threadSet) start() {
	for _, t := range w.threads {
		go t.run()
	}
}

// end waits until the threads have executed their calls. Calls to lost memory fail: it cannot
// be replaced while the caller's task runs.
func (w *threadSet) end() error {
	held, k := false, w.threads[0].clients
	for _, t := range w.threads {
		held = t.session.waits.Swap(false) || held
	}
	if held {
		k.cache.changed()
	}
	k.splits.Lock()
	for _, t := range w.threads {
		t.ring.close()
	}
	k.splits.Unlock()
	var err error
	for _, t := range w.threads {
		t.wakeUp()
	}
	for _, t := range w.threads {
		err = errors.Join(err, <-t.ended)
	}
	return err
}

// discard ends a set that never ran.
func (w *threadSet) discard() error {
	if w == nil {
		return nil
	}
	var err error
	for _, t := range w.threads {
		err = errors.Join(err, t.session.Close())
	}
	return err
}

const (
	clientRing  = 1024 // requests that may wait for a client thread, a power of two
	clientSpins = 64   // rounds without work before it parks
)

// clientThread is a goroutine behind the callback API. It moves calls from its batch ring to
// its session, which has at most b·q pending operations, and calls back.
type clientThread struct {
	clients  *clients
	session  *Session
	ring     batchRing
	overflow overflow // of the ring: see trySplit
	pending  []call   // by tag
	free     []uint64 // tags not in use
	done     [pollBatch]device.Completion
	ended    chan error // holds how the thread ended
	spins    int        // rounds without work before it parks with calls pending

	// A producer that finds parked set after its push wakes the thread; the thread checks
	// the ring again after it has set parked. One of the two sees the other.
	parked atomic.Bool
	wake   chan struct{} // holds one token
	// room wakes producers that wait for a full ring; each passes the token on.
	room chan struct{} // holds one token
}

func newClientThread(k *clients, s *Session) *clientThread {
	t := &clientThread{
		clients: k, session: s, ring: newBatchRing(clientRing, k.cache.cfg.Tuning.Locks),
		pending: make([]call, len(s.ops)), free: make([]uint64, len(s.ops)),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	for i := range t.free {
		t.free[i] = uint64(i)
	}
	if k.cache.Transport() != tcp.Name {
		t.spins = clientSpins
	} // over tcp completions come from the network poller, which spinning delays
	return t
}

// push adds a call to the ring and wakes the thread.
func (t *clientThread) push(c call) pushed {
	result := t.ring.push(c)
	if result == pushOK && t.parked.Load() {
		t.wakeUp()
	}
	return result
}

// next returns the oldest call that waits, or nil, and whether it is in the overflow.
func (t *clientThread) next() (c *call, over bool) {
	if c := t.ring.peek(); c != nil || !t.overflow.some.Load() || !t.ring.empty() {
		return c, false
	}
	return t.overflow.peek(), true
}

// wakeUp ends the thread's current or next sleep.
func (t *clientThread) wakeUp() {
	offer(t.wake)
	t.session.wake()
}

func offer(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

func (t *clientThread) run() {
	unpin, err := t.clients.pins.Pin()
	if err != nil {
		t.clients.cache.log.Warn("a client thread is not pinned", "err", err)
	}
	defer unpin()
	for idle := 0; !t.finished(); {
		switch {
		case t.step():
			idle = 0
		case idle < t.spins || idle < clientSpins && t.session.pending == 0:
			idle++
			runtime.Gosched()
		default:
			t.park()
			idle = 0
		}
	}
	offer(t.room)
	t.ended <- t.session.Close()
}

// finished reports whether all calls are executed and none can follow.
func (t *clientThread) finished() bool {
	return t.session.pending == 0 && t.ring.drained() && !t.overflow.some.Load()
}

// step starts waiting calls, submits them, delivers completions, and reports whether there
// was work.
func (t *clientThread) step() bool {
	taken := 0
	for len(t.free) > 0 {
		c, over := t.next()
		if c == nil || !t.begin(c) {
			break
		}
		if over {
			t.overflow.drop()
		} else {
			t.ring.drop()
		}
		taken++
	}
	if taken > 0 {
		offer(t.room)
		// Fails only after Close of the session, which this thread calls itself.
		_ = t.session.Submit()
	}
	n := t.session.Poll(t.done[:])
	for i := range t.done[:n] {
		d := &t.done[i]
		c := &t.pending[d.Tag]
		cb := c.cb
		*c = call{}
		t.free = append(t.free, d.Tag)
		t.callBack(cb, d.N, d.Err)
	}
	return taken+n > 0
}

// begin starts a call, or returns false if the session is full.
func (t *clientThread) begin(c *call) bool {
	tag := t.free[len(t.free)-1]
	var err error
	if c.write {
		err = t.session.Write(c.buf, c.addr, tag)
	} else {
		err = t.session.Read(c.buf, c.addr, tag)
	}
	if errors.Is(err, device.ErrQueueFull) {
		return false
	}
	if err != nil {
		t.callBack(c.cb, 0, err)
		return true
	}
	t.pending[tag] = *c
	t.free = t.free[:len(t.free)-1]
	return true
}

func (t *clientThread) callBack(cb Callback, n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.clients.cache.panics.Add(1)
			t.clients.cache.log.Error("callback panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	cb(n, err)
}

// park sleeps until there is a call that the session accepts or a completion, or the cache
// changes.
func (t *clientThread) park() {
	t.parked.Store(true)
	defer t.parked.Store(false)
	if c, _ := t.next(); c != nil && len(t.free) > 0 && !t.session.stopped || t.finished() {
		return
	}
	if t.session.pending > 0 {
		// The next step finds the reason.
		_ = t.session.park(context.Background())
		return
	}
	<-t.wake
}
