package kv

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrHoldsLocks means that a session within Atomically was closed, or was to lock keys again.
var ErrHoldsLocks = errors.New("kv: the session holds locks")

// ErrNotLocked means that an operation within Atomically used a key that was not locked, or
// changed one that was locked for reading.
var ErrNotLocked = errors.New("kv: the key is not locked")

// ErrKeyBusy means that an operation would have to wait for a session that has called
// [Session.RefuseWaiters].
var ErrKeyBusy = errors.New("kv: the key is locked for long")

// A key is locked by locking the stripe of its hash. While there are no lockers, operations
// ignore stripes. The first locker sets guarded and waits until every session has entered a
// later epoch. From then on every operation goes the general way and holds the stripe of its
// key during each attempt, so a locker need not wait for epochs. After guardTime without a
// locker, guarded is cleared.
//
// There is no deadlock: lockers take stripes in ascending order, outside any epoch; operations
// wait for a stripe outside their epoch and while holding no stripe. An operation of a session
// that holds locks fails on a key that is not locked, instead of waiting. The first in the line of a
// stripe waits for the holders of that stripe only, and the others for it.
//
// An operation that reads a record from the device holds its stripe at its beginning and at
// its end. The record does not change in between, so a read takes effect at its beginning; a
// change begins again if the key has changed.

// stripe is one word:
//
//	63      62         61       60            59..40        39..20         19..0
//	wanted  exclusive  refuses  wanted alone  shared locks  changes going  reads going on
//
// Lockers and operations that wait for the stripe stand in a line. The first of it sets wanted, so
// that lockers and changes that come later do not starve it, and clears it when it leaves the line.
// If it locks exclusively, it sets wanted alone too, which keeps off later reads. While refuses is
// set, nothing waits for the stripe.
type stripe struct{ v atomic.Uint64 }

const (
	stripeBits = 16

	stripeReads       = 1<<20 - 1
	stripeChanges     = stripeReads << 20
	stripeShared      = stripeReads << 40
	stripeWantedAlone = 1 << 60
	stripeRefuses     = 1 << 61
	stripeExclusive   = 1 << 62
	stripeWanted      = 1 << 63
)

// claim is a way to hold a stripe: the value it adds, the bits that exclude it, and the bits that
// it sets while it is the first in the line.
type claim struct{ adds, bars, wants uint64 }

var (
	toRead   = claim{1, stripeExclusive | stripeWantedAlone, stripeWanted}
	toChange = claim{1 << 20, stripeExclusive | stripeWanted | stripeShared, stripeWanted}
	shared   = claim{1 << 40, stripeExclusive | stripeWanted | stripeChanges, stripeWanted}
	alone    = claim{stripeExclusive, stripeExclusive | stripeWanted | stripeShared | stripeChanges | stripeReads, stripeWanted | stripeWantedAlone}
)

// inLine is the claim without the bits that keep off those that are not the first in the line.
func (c claim) inLine() claim {
	c.bars &^= stripeWanted | stripeWantedAlone
	return c
}

// try takes the stripe if it is free.
func (s *stripe) try(c claim) bool {
	for {
		old := s.v.Load()
		if old&c.bars != 0 {
			return false
		}
		if s.v.CompareAndSwap(old, old+c.adds) {
			return true
		}
	}
}

// lock waits in the line of a stripe and takes it for a locker. It returns an error when ctx ends.
func (l *locks) lock(ctx context.Context, n uint32, c claim) error {
	s := &l.stripes[n]
	switch {
	case s.try(c):
		return nil
	case s.v.Load()&stripeRefuses != 0:
		return ErrKeyBusy
	}
	if err := l.enterLine(ctx, n, c); err != nil {
		return err
	}
	defer l.leaveLine(n, c)
	for waits := 0; !s.try(c.inLine()); waits++ {
		switch {
		case s.v.Load()&stripeRefuses != 0:
			return ErrKeyBusy
		case waits < patience:
			runtime.Gosched()
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("kv: waiting for a key's lock: %w", ctx.Err())
		}
		time.Sleep(lockNap)
	}
	return nil
}

// line is the line of those that wait for a stripe. Channels serve senders in order.
type line struct {
	first chan struct{} // holds one token while there is a first
	size  int           // guarded by linesMu
}

// enterLine returns when the caller is the first in the line of a stripe, or an error when ctx ends.
func (l *locks) enterLine(ctx context.Context, n uint32, c claim) error {
	l.linesMu.Lock()
	in := l.lines[n]
	if in == nil {
		in = &line{first: make(chan struct{}, 1)}
		l.lines[n] = in
	}
	in.size++
	l.linesMu.Unlock()
	select {
	case in.first <- struct{}{}:
	default:
		select {
		case in.first <- struct{}{}:
		case <-ctx.Done():
			l.linesMu.Lock()
			defer l.linesMu.Unlock()
			l.shorten(n, in)
			return fmt.Errorf("kv: waiting for a key's lock: %w", ctx.Err())
		}
	}
	l.stripes[n].v.Or(c.wants)
	return nil
}

// leaveLine is called by the first in a line, with the claim with which it has entered it.
func (l *locks) leaveLine(n uint32, c claim) {
	l.stripes[n].v.And(^c.wants)
	l.linesMu.Lock()
	defer l.linesMu.Unlock()
	in := l.lines[n]
	<-in.first
	l.shorten(n, in)
}

// shorten counts one less in a line. The caller holds linesMu.
func (l *locks) shorten(n uint32, in *line) {
	if in.size--; in.size == 0 {
		delete(l.lines, n)
	}
}

func (s *stripe) release(c claim) { s.v.Add(-c.adds) }

const (
	patience  = 1000 // yields before a waiter sleeps: the holder probably waits for a device
	lockNap   = 50 * time.Microsecond
	guardTime = 100 * time.Millisecond // without a locker, until guarded is cleared
)

// locks are the locks of a store's keys.
type locks struct {
	guarded atomic.Bool // sessions look at stripes, from the next epoch they enter
	stripes *[1 << stripeBits]stripe

	ready   atomic.Bool  // all sessions do
	lockers atomic.Int64 // sessions that hold locks, or are about to
	recent  atomic.Bool  // there was a locker since the last unguard
	mu      sync.Mutex   // guards changes of the other fields
	idle    *time.Timer

	linesMu  sync.Mutex       // guards the fields below
	lines    map[uint32]*line // of the stripes for which something waits
	refusing map[uint32]int   // holders that refuse waiters, of stripes with some
}

func stripeOf(hash uint64) uint32 { return uint32(hash>>24) & (1<<stripeBits - 1) }

// Atomically calls do while no other session reads or changes any of the keys. The reads of do
// through this session are consistent. Other sessions, commits and checkpoints see all of its
// changes or none. There is no rollback: if do returns an error or panics, its changes remain.
//
// do uses this session, with plain calls, batches or streams, for these keys only
// (ErrNotLocked). It must be short, must not commit, checkpoint or close the store, and must
// not wait for a goroutine that may wait for one of the keys. Pending operations of the
// session are completed before the keys are locked, and again before they are unlocked.
// Atomically of a session does not nest: it is ErrHoldsLocks.
//
// A call within do that waits for the end of do never returns: one of another session or of the store
// that uses one of the keys, or that commits, checkpoints, or changes the store as a whole.
func (s *Session) Atomically(ctx context.Context, keys [][]byte, do func() error) error {
	return s.locked(ctx, keys, alone, do)
}

// ReadAtomically is [Session.Atomically] for a do that only reads: other sessions may read the
// keys meanwhile, but not change them. It waits behind sessions that already wait to change them.
func (s *Session) ReadAtomically(ctx context.Context, keys [][]byte, do func() error) error {
	return s.locked(ctx, keys, shared, do)
}

// Atomically is [Session.Atomically] for callers without a session: do is lent one.
func (st *Store) Atomically(ctx context.Context, keys [][]byte, do func(s *Session) error) error {
	return st.withAny(func(s *Session) error {
		return s.Atomically(ctx, keys, func() error { return do(s) })
	})
}

func (s *Session) locked(ctx context.Context, keys [][]byte, c claim, do func() error) (err error) {
	switch {
	case s.refusal() != nil:
		return s.refusal()
	case s.holds.adds != 0:
		return ErrHoldsLocks
	}
	if err := s.completeAll(ctx); err != nil { // of before
		return err
	}
	before, submits := s.ctx, s.submits
	s.ctx, s.submits = ctx, ctx
	defer func() { s.ctx, s.submits = before, submits }()
	if err := s.lock(ctx, keys, c); err != nil {
		return err
	}
	defer s.unlock()
	defer func() {
		if left := s.completeAll(context.Background()); err == nil {
			err = left
		}
	}()
	return do()
}

func (s *Session) lock(ctx context.Context, keys [][]byte, c claim) error {
	st := s.store
	if !s.whole { // else it is in a section
		if err := s.enterSection(ctx); err != nil {
			return err
		}
	}
	st.locks.lockers.Add(1)
	st.guard()
	s.stripes = s.stripes[:0]
	for _, key := range keys {
		s.stripes = append(s.stripes, stripeOf(s.hash(key)))
	}
	slices.Sort(s.stripes)
	s.stripes = slices.Compact(s.stripes)
	for i, n := range s.stripes {
		if err := st.locks.lock(ctx, n, c); err != nil {
			s.stripes = s.stripes[:i]
			s.release(c)
			return err
		}
	}
	s.holds = c
	return nil
}

func (s *Session) unlock() {
	c := s.holds
	s.holds = claim{}
	if s.refuses {
		s.refuses = false
		s.store.locks.refuse(s.stripes, -1)
	}
	s.release(c)
}

// LockMore locks more keys within Atomically or ReadAtomically, until its end. The keys' order may
// differ from that in which other sessions lock theirs, so two sessions may wait for each other:
// then LockMore returns an error when ctx ends, and some of the keys may be locked. Once it has
// returned nil, do may use them.
func (s *Session) LockMore(ctx context.Context, keys [][]byte) error {
	if s.holds.adds == 0 {
		return fmt.Errorf("%w: LockMore outside Atomically", ErrNotLocked)
	}
	for _, key := range keys {
		n := stripeOf(s.hash(key))
		at, found := slices.BinarySearch(s.stripes, n)
		if found {
			continue
		}
		// Not behind the line: the first of it may wait for another reader that waits for this one.
		if !s.store.locks.stripes[n].try(s.holds.inLine()) {
			if err := s.store.locks.lock(ctx, n, s.holds); err != nil {
				return err
			}
		}
		if s.refuses {
			s.store.locks.refuse([]uint32{n}, 1)
		}
		s.stripes = slices.Insert(s.stripes, at, n)
	}
	return nil
}

// RefuseWaiters is called within Atomically or ReadAtomically when that takes long. From now on,
// operations and lockers that would have to wait for its end fail with ErrKeyBusy, and those that
// wait already do so too.
func (s *Session) RefuseWaiters() {
	if s.holds.adds == 0 || s.refuses {
		return
	}
	s.refuses = true
	s.store.locks.refuse(s.stripes, 1)
}

// refuse counts a holder that refuses waiters of stripes, or one less.
func (l *locks) refuse(stripes []uint32, by int) {
	l.linesMu.Lock()
	defer l.linesMu.Unlock()
	for _, n := range stripes {
		if l.refusing[n] += by; l.refusing[n] > 0 {
			l.stripes[n].v.Or(stripeRefuses)
		} else {
			delete(l.refusing, n)
			l.stripes[n].v.And(^uint64(stripeRefuses))
		}
	}
}

// release releases the stripes that lock took.
func (s *Session) release(c claim) {
	for _, n := range s.stripes {
		s.store.locks.stripes[n].release(c)
	}
	s.store.locks.lockers.Add(-1)
	if !s.whole {
		s.leaveSection()
	}
}

// guard makes the operations of all sessions look at stripes, and returns when they do. The
// caller counts as a locker, so that stays so.
func (st *Store) guard() {
	l := &st.locks
	if !l.recent.Load() {
		l.recent.Store(true)
	}
	if l.ready.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready.Load() {
		return
	}
	if l.stripes == nil {
		l.stripes = new([1 << stripeBits]stripe)
		l.lines, l.refusing = make(map[uint32]*line), make(map[uint32]int)
	}
	l.guarded.Store(true)
	st.epoch.Wait(st.epoch.Bump())
	l.ready.Store(true)
	if l.idle == nil {
		l.idle = time.AfterFunc(guardTime, st.unguard)
	} else {
		l.idle.Reset(guardTime)
	}
}

// unguard clears guarded unless there was a locker lately; else it runs again later.
func (st *Store) unguard() {
	l := &st.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.recent.Swap(false)
	if !again { // a locker from now on waits in guard, or is counted
		l.ready.Store(false)
		if again = l.lockers.Load() > 0; again {
			l.ready.Store(true)
		}
	}
	if again {
		l.idle.Reset(guardTime)
		return
	}
	l.guarded.Store(false)
	st.epoch.Bump()
}

// claimOf is the claim of an operation.
func claimOf(kind OpKind) claim {
	if kind.changes() {
		return toChange
	}
	return toRead
}

// pass takes the stripe of a key before an operation of a guarded session is attempted. The
// caller releases at, unless it is nil. A session that holds locks takes no stripe, but must
// have locked the key. Inner records have no stripe. ok is false if the operation has to wait for the
// stripe.
func (s *Session) pass(kind OpKind, key []byte, hash uint64) (at *stripe, c claim, err error, ok bool) {
	c = claimOf(kind)
	if s.inner(key) {
		return nil, claim{}, nil, true
	}
	n := stripeOf(hash)
	if s.holds.adds == 0 {
		at = &s.store.locks.stripes[n]
		take := c
		if s.first {
			take = c.inLine()
		}
		switch {
		case at.try(take):
			return at, c, nil, true
		case at.v.Load()&stripeRefuses != 0:
			return nil, claim{}, ErrKeyBusy, true
		}
		return nil, claim{}, nil, false
	}
	if _, found := slices.BinarySearch(s.stripes, n); !found {
		err = ErrNotLocked
	} else if s.holds == shared && kind.changes() {
		err = fmt.Errorf("%w for changes, only for reading", ErrNotLocked)
	}
	return nil, claim{}, err, true
}
