package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/readcache"
	"github.com/redykv/redykv/kv/internal/gate"
	"github.com/redykv/redykv/kv/internal/keycount"
)

// Session is one goroutine's access to a store. It is used by one goroutine at a time and
// closed before the store.
//
// Operations on the same key take effect in the order of their calls. A read that is pending
// when a later write of its key is submitted returns the value before that write or, during
// compaction, possibly the value after it.
//
// Operations are plain calls (plain.go, and plain_amd64.s), batches or streams (op.go). Plain
// calls go directly to a record in memory if they can. Batches and streams go through lanes
// (lane.go), which prefetch index buckets and records, and end in tryAt (attempt.go). All
// other operations go the general way: attempt tries them in memory until they are complete or
// need a record from the device. Those become pending operations (pending.go), which continue
// when the record has been read.
type Session struct {
	// Used by every operation.
	handle     epoch.Handle
	view       view     // the store's state as of the session's last epoch
	words      bool     // keys and values have 8 bytes: see inplace.go
	inAssembly bool     // plain calls are in assembly: words is set, and entering an epoch needs no fence
	refuses    bool     // RefuseWaiters was called for stripes
	holds      claim    // how Atomically holds stripes; zero outside Atomically
	stripes    []uint32 // stripes held, in ascending order
	first      bool     // the operation is the first in its stripe's line: see attempt
	// counts stand near the start of the session, which starts a page: a load waits for an older
	// store to an address with the same low 12 bits, and goroutines that call few functions have
	// their stack at the end of a page. With the counts at the session's end RMWWord was a
	// quarter slower.
	counts counts

	counting bool                       // keys are counted: see counts.go
	keys     *[keycount.Classes]counter // keys added by this session, less keys removed, by class; nil if not counting

	name   string      // "" if it has no commit point
	before CommitPoint // commit point of earlier sessions of this name

	layout    hlog.Layout
	keySize   int  // 0 if it varies
	valueSize int  // 0 if it varies
	fixed     bool // neither varies, and such a record fits a page
	ahead     int  // bytes of a record that plain calls prefetch: see findDirect
	record    int  // bytes of a record that lanes prefetch first, the size of a fixed one
	rest      int  // offset of the bytes that lanes prefetch later; 0 if there are none
	hash      func([]byte) uint64
	log       *hlog.Log
	store     *Store
	cache     *readcache.Cache // nil if the store has none
	queue     device.Queue     // nil until the first operation needs it
	walker    *hlog.Walker     // nil until the session is first used for a walk of the log
	traces    []trace          // of a batch of opNewest, opMove or opLink
	unusable  error            // the reason why the session takes no more operations: see Err
	whole     bool             // inside Whole
	section   gate.Section     // of the outermost Whole or Atomically

	inUserCode bool // the user's code runs within an operation: the session's other calls are refused

	ctx     context.Context // bounds waiting: see SetContext
	submits context.Context // the same of operations of Submit, also while another call is under way
	plain   Op              // for plain calls
	update  *Update         // argument of a Modifier, in a cache line of its own
	old     []byte          // scratch: the old value
	fresh   []byte          // scratch: the new value
	form    Update          // update for a value of 8 bytes: Old is oldWord, New is in newWord
	oldWord uint64
	newWord uint64
	zeros   []byte // the value of a tombstone

	sealing sealing // for the operation that is being attempted

	witnesses float64 // accesses that are still to be passed to the sampler, whatever their key
	witnessed uint64  // operations at the last view, of which witnesses are a part

	lanes    [2]lane
	filling  *lane  // being filled with operations
	scanned  *lane  // its operations' records have been prefetched
	streamed int    // operations of Submit that are not in polled yet
	polled   opRing // complete operations for Poll

	pending        []pendingOp         // by the tag of their read
	free           []uint32            // indices of unused entries of pending
	ordering       []uint32            // pending ordered operations: see order.go
	allPendingRMWs int                 // their number
	abandoned      Op                  // stands for the operations of abandonBatch
	refused        []device.Completion // of reads that the device did not take; pollQueue handles them
	numAbandoned   int                 // pending entries of such operations
	batch          int                 // pending operations of a batch or plain call
	batchErr       error               // the first error of the batch
	unsubmitted    int                 // reads enqueued since the last Submit of the queue

	// completions[takenReads:polledReads] were polled from the queue and not handled yet.
	completions [64]device.Completion
	takenReads  int
	polledReads int
}

// NewSession opens a session. Its queue on the device is opened by the first
// operation that needs it. On a closed store every operation returns ErrClosed.
func (st *Store) NewSession() *Session {
	s := st.makeSession()
	if err := st.openSession(s); err != nil {
		s.stop(err)
	}
	return s
}

// makeSession makes a session for openSession.
func (st *Store) makeSession() *Session {
	layout := st.log.Layout()
	s := &Session{
		ctx:       context.Background(),
		submits:   context.Background(),
		store:     st,
		log:       st.log,
		cache:     st.cache,
		layout:    layout,
		keySize:   st.opts.KeySize,
		valueSize: st.opts.ValueSize,
		words:     vectors && st.opts.KeySize == 8 && st.opts.ValueSize == 8 && st.opts.hash == nil && st.keyCounters == nil,
		counting:  st.keyCounters != nil,
		record:    layout.Size(st.opts.KeySize, st.opts.ValueSize, false),
		hash:      st.hash,
		zeros:     make([]byte, st.opts.ValueSize),
		fresh:     make([]byte, 0, max(8, st.opts.ValueSize)),
		pending:   make([]pendingOp, st.opts.QueueDepth),
		free:      make([]uint32, 0, st.opts.QueueDepth),
		ordering:  make([]uint32, orderingClasses(st.opts.QueueDepth)),
		polled:    opRing{ops: make([]*Op, st.opts.QueueDepth)},
	}
	if s.counting {
		s.keys = new([keycount.Classes]counter)
	}
	switch {
	case !layout.Fixed():
		s.record = 2 * 64 // lengths and key, and the start of the value
		s.rest = s.record
	case s.record > 2*64:
		s.rest = 64 // lanes prefetch the first cache line and the last one
	}
	s.abandoned.Kind = opAbandoned
	s.update = new(Update)
	s.form = Update{Found: true, Old: word(&s.oldWord), New: word(&s.newWord)[:0]}
	s.fixed = layout.Fixed() && layout.Size(s.keySize, s.valueSize, true) <= st.log.PageSize()-hlog.FirstAddress
	s.view.last = int64(s.record) - 1
	s.view.current, s.view.hash = &noEpoch, wordHash(st.keyHash.Word)
	s.filling, s.scanned = &s.lanes[0], &s.lanes[1]
	for i := range s.pending {
		s.free = append(s.free, uint32(len(s.pending)-1-i))
	}
	return s
}

// stop makes the session take no more operations.
func (s *Session) stop(err error) {
	s.unusable = err
	s.view.current = &noEpoch // Resume fails for a read-modify-write whose Modifier closes the session
	s.allowDirect(false)
}

// Err returns the error that ended the session, or nil. It is ErrClosed after Close. It is
// another error after the session's queue on the device has failed: pending operations then
// stay incomplete, and their Ops must not be used again. An error of an operation is in its Op
// and does not end the session.
func (s *Session) Err() error { return s.unusable }

// Close completes all operations and closes the session. If the queue on the device has
// failed, Close returns that error, and the session is closed with pending operations
// incomplete: see [Session.Err].
func (s *Session) Close() error {
	switch {
	case errors.Is(s.unusable, ErrClosed):
		return nil
	case s.inUserCode:
		return fmt.Errorf("kv: closing session: %w", ErrInModifier)
	case s.holds.adds != 0:
		return fmt.Errorf("kv: closing session: %w", ErrHoldsLocks)
	}
	err := s.completeAll(context.Background())
	for err == nil && s.numAbandoned > 0 { // the device still writes to their buffers
		err = s.await(context.Background())
	}
	s.stop(ErrClosed)
	s.handle.Unregister()
	s.store.removeSession(s)
	if err != nil {
		s.dropPending()
	}
	if s.queue != nil {
		err = errors.Join(err, s.queue.Close())
	}
	if s.walker != nil {
		err = errors.Join(err, s.walker.Close())
	}
	if err != nil {
		return fmt.Errorf("kv: closing session: %w", err)
	}
	return nil
}

// completeAll waits until no operation is pending.
func (s *Session) completeAll(ctx context.Context) error {
	s.flush()
	for len(s.free)+s.numAbandoned < len(s.pending) {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// SetContext sets the context of plain calls, of Run and of operations of Submit. A new
// session has [context.Background]. Calls with a context parameter use that instead.
//
// A context affects an operation only while it waits: for a record from the device, for space
// in the log, for a lock of [Session.Atomically] or for another operation on its key. If ctx
// ends then, the operation changes nothing and returns ctx's error. An operation of Submit
// that is already pending is completed nevertheless.
func (s *Session) SetContext(ctx context.Context) { s.ctx, s.submits = ctx, ctx }

// dropPending drops the pending operations of a queue that has failed. Their buffers are not
// used again, since the device may still write to them. No commit contains these operations:
// see commitPoint.
func (s *Session) dropPending() {
	s.streamed, s.batch, s.numAbandoned, s.free = 0, 0, 0, s.free[:0]
	for i := range s.pending {
		s.pending[i].op = nil
		s.free = append(s.free, uint32(i))
	}
}

// enter enters the current epoch, and updates view if the epoch has changed.
func (s *Session) enter() {
	if !s.handle.Reenter(s.view.epoch) {
		s.enterAnew()
	}
}

// enterAnew is enter for an epoch that has changed since the last call.
func (s *Session) enterAnew() {
	s.view.epoch = s.handle.Enter()
	s.view.look(s.store)
	s.lookSampling()
}

func (s *Session) leave() { s.handle.Leave() }

// leaveAnyhow leaves an epoch in which the user's code may have panicked.
func (s *Session) leaveAnyhow() {
	s.inUserCode = false
	s.leave()
}

// refusal returns the reason why the session takes no calls, or nil.
func (s *Session) refusal() error {
	if s.inUserCode {
		return ErrInModifier
	}
	return s.unusable
}

// The store's own sessions serve the operations of [Store]. Each may have a queue on the
// device, so their number is bounded: a call waits, in order of arrival, while all of them are
// lent. Scan, compaction and [Store.Atomically] are not counted and never wait: the sessions could be
// lent to calls that wait for them.
const (
	maxLent   = 128              // counted sessions
	keepIdle  = 8                // idle sessions that trim keeps open
	trimAfter = 10 * time.Second // idle time after which trim closes sessions
)

// pool holds the store's own sessions. Store.mu guards it.
type pool struct {
	idle     []*Session
	lent     int             // counted sessions that are lent
	waiting  []chan *Session // waiting calls in order of arrival
	settling int             // sessions that wait for reads that their calls have given up
	settled  *sync.Cond      // on Store.mu: settling is lower
	spare    int             // least number of idle sessions since the trim timer was started
	trim     *time.Timer     // closes spare sessions; nil if not started
	after    time.Duration
}

// takeIdle returns an idle session, or a new one if there is none. The caller holds mu;
// takeIdle unlocks it.
func (st *Store) takeIdle() *Session {
	p := &st.pool
	n := len(p.idle) - 1
	if n < 0 {
		st.mu.Unlock()
		return st.NewSession()
	}
	s := p.idle[n]
	p.idle, p.spare = p.idle[:n], min(p.spare, n)
	st.mu.Unlock()
	return s
}

// with lends one of the store's own sessions to use, which must not call the store. ctx bounds
// waiting, for the session and within use.
func (st *Store) with(ctx context.Context, use func(*Session) error) error {
	p := &st.pool
	var s *Session
	st.mu.Lock()
	if p.lent == maxLent {
		turn := make(chan *Session, 1)
		p.waiting = append(p.waiting, turn)
		st.mu.Unlock()
		select {
		case s = <-turn:
		case <-ctx.Done():
			st.leaveQueue(turn)
			return fmt.Errorf("kv: waiting for a session: %w", ctx.Err())
		}
	} else {
		p.lent++
		s = st.takeIdle()
	}
	s.ctx = ctx
	defer st.passOn(s)
	return use(s)
}

// leaveQueue ends a call's waiting for a session. If the call was handed a session meanwhile,
// that goes to the next one.
func (st *Store) leaveQueue(turn chan *Session) {
	st.mu.Lock()
	if i := slices.Index(st.pool.waiting, turn); i >= 0 {
		st.pool.waiting = slices.Delete(st.pool.waiting, i, i+1)
		st.mu.Unlock()
		return
	}
	st.mu.Unlock()
	st.passOn(<-turn)
}

// passOn gives a session to the next waiting call, or back to the pool.
func (st *Store) passOn(s *Session) {
	s.ctx = context.Background()
	s = st.replaceFailed(s)
	st.mu.Lock()
	p := &st.pool
	if st.settle(s) {
		if len(p.waiting) == 0 {
			p.lent--
			st.mu.Unlock()
			return
		}
		s = st.takeIdle() // unlocks
		st.mu.Lock()
	}
	defer st.mu.Unlock()
	if len(p.waiting) > 0 {
		p.waiting[0] <- s
		p.waiting[0], p.waiting = nil, p.waiting[1:]
		return
	}
	p.lent--
	st.giveIdle(s)
}

// withAny is with for calls that must not wait for a session: see above.
func (st *Store) withAny(use func(*Session) error) error {
	st.mu.Lock()
	s := st.takeIdle()
	defer func() {
		for s.polled.len() > 0 { // what use has submitted, and not polled
			s.polled.pop()
		}
		s = st.replaceFailed(s)
		st.mu.Lock()
		defer st.mu.Unlock()
		if !st.settle(s) {
			st.giveIdle(s)
		}
	}()
	return use(s)
}

// settle returns a session to the pool once the reads have ended that its last call gave up, if there
// are any: a device may wait until they are polled, and an idle session polls nothing. It reports
// whether it does. It does not if very many wait already, for a device that hangs; one of those takes it
// over then. The caller holds mu.
func (st *Store) settle(s *Session) bool {
	p := &st.pool
	if !s.unsettled() || s.unusable != nil || p.settling == maxLent {
		return false
	}
	p.settling++
	go func() {
		for s.numAbandoned > 0 && s.unusable == nil {
			_ = s.await(context.Background()) // its error is in unusable
		}
		if s.unusable == nil && s.walker != nil {
			if err := s.walker.Pause(context.Background()); err != nil {
				s.stop(walkError(err))
			}
		}
		settled := st.replaceFailed(s)
		st.mu.Lock()
		defer st.mu.Unlock()
		p.settling--
		st.giveIdle(settled)
		if i := slices.IndexFunc(p.idle, (*Session).unsettled); i >= 0 && !st.closed {
			next := p.idle[i] // there were too many
			p.idle = slices.Delete(p.idle, i, i+1)
			st.settle(next)
		}
		p.settled.Broadcast()
	}()
	return true
}

// unsettled reports whether reads have not ended that the session's last call gave up.
func (s *Session) unsettled() bool {
	return s.numAbandoned > 0 || s.walker != nil && s.walker.Pending()
}

// replaceFailed returns the session, or a new one instead of it if its queue, or its walker's, has failed.
func (st *Store) replaceFailed(s *Session) *Session {
	if s.unusable == nil || errors.Is(s.unusable, ErrClosed) {
		return s
	}
	fresh := st.NewSession()
	st.closeOwn(s)
	return fresh
}

// giveIdle returns sessions to the pool, and starts the trim timer if there are sessions to
// close. The caller holds mu.
func (st *Store) giveIdle(s ...*Session) {
	p := &st.pool
	p.idle = append(p.idle, s...)
	if len(p.idle) > keepIdle && p.trim == nil && !st.closed {
		p.spare = len(p.idle)
		p.trim = time.AfterFunc(p.after, st.trim)
	}
}

// trim closes sessions that were idle for the time of the timer. Close waits for it.
func (st *Store) trim() {
	st.closing.Lock()
	defer st.closing.Unlock()
	st.mu.Lock()
	p := &st.pool
	p.trim = nil
	n := max(min(p.spare, len(p.idle))-keepIdle, 0)
	extra := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	st.giveIdle()
	st.mu.Unlock()
	for _, s := range extra {
		st.closeOwn(s)
	}
}

// closeOwn closes a session of the store's own.
func (st *Store) closeOwn(s *Session) {
	if err := s.Close(); err != nil {
		st.opts.Logger.Warn("closing a session of the store's own", "err", err)
	}
}
