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

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/goroutine"
)

// ErrNotLocked says that an operation within Atomically was on a key that was not
// locked, or changed one that was locked for reading.
var ErrNotLocked = errors.New("kv: the key is not locked")

// Keys are locked by the stripe that their hash falls in. As long as nobody locks
// anything, stripes do not exist for a session's operations. The first locker sets
// guarded, which sessions take over with the next epoch, and waits for it: from
// then on every operation goes the general way and holds its stripe itself while
// it is tried, so that a locker need not wait for epochs. When there was no locker
// for a while, guarded ends.
//
// Lockers take stripes in ascending order and hold no epoch, and operations wait
// for a stripe outside their epoch and hold none: nobody waits in a circle. An
// operation of a holder on what it has not locked fails, instead of waiting.
//
// An operation to a record on the device holds its stripe at its beginning and at
// its end. What it reads between does not change, so a read counts as done at its
// beginning; a change begins anew if it was too late.

// stripe is one word:
//
//	63      62         61..40        39..20         19..0
//	wanted  exclusive  shared locks  changes going  reads going on
//
// A locker that has to wait sets wanted, so that newcomers do not keep it waiting
// for ever; it goes with whoever gets the stripe next.
type stripe struct{ v atomic.Uint64 }

const (
	stripeBits = 16

	stripeReads     = 1<<20 - 1
	stripeChanges   = stripeReads << 20
	stripeShared    = (1<<22 - 1) << 40
	stripeExclusive = 1 << 62
	stripeWanted    = 1 << 63
)

// claim is a way to hold a stripe: what it adds, and what it does not go with.
type claim struct{ adds, bars uint64 }

var (
	toRead   = claim{1, stripeExclusive | stripeWanted}
	toChange = claim{1 << 20, stripeExclusive | stripeWanted | stripeShared}
	shared   = claim{1 << 40, stripeExclusive | stripeChanges}
	alone    = claim{stripeExclusive, stripeExclusive | stripeShared | stripeChanges | stripeReads}
)

// try takes the stripe for an operation, or does not.
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

// lock takes the stripe for a locker, as soon as it is free. If that takes long, it calls
// mayWait once, and gives up when ctx ends.
func (s *stripe) lock(ctx context.Context, c claim, mayWait func() error) error {
	for waits := 0; ; waits++ {
		old := s.v.Load()
		switch {
		case old&c.bars == 0:
			if s.v.CompareAndSwap(old, old&^stripeWanted+c.adds) {
				return nil
			}
		case waits == patience:
			if err := mayWait(); err != nil {
				s.v.And(^uint64(stripeWanted)) // another locker sets it again
				return err
			}
		case waits > patience && ctx.Err() != nil:
			s.v.And(^uint64(stripeWanted))
			return fmt.Errorf("kv: waiting for a key's lock: %w", ctx.Err())
		case old&stripeWanted == 0:
			s.v.Or(stripeWanted)
		case waits < patience:
			runtime.Gosched()
		default:
			time.Sleep(lockNap)
		}
	}
}

func (s *stripe) release(c claim) { s.v.Add(-c.adds) }

const (
	patience  = 1000 // yields before a locker naps: the holder waits for a device, probably
	lockNap   = 50 * time.Microsecond
	guardTime = 100 * time.Millisecond // without a locker, until operations are unguarded
)

// locks are a store's.
type locks struct {
	guarded atomic.Bool // sessions look at stripes, as of the next epoch they see
	stripes *[1 << stripeBits]stripe

	ready  atomic.Bool // all of them do; changes with transactions held, exclusively if to false
	recent atomic.Bool // somebody locked something lately
	mu     sync.Mutex  // guards changes of the others
	idle   *time.Timer
}

// stripe is the one of a hash.
func (l *locks) stripe(n uint32) *stripe { return &l.stripes[n] }

func stripeOf(hash uint64) uint32 { return uint32(hash>>24) & (1<<stripeBits - 1) }

// Atomically calls do while no other session reads or changes any of the keys:
// what do reads of them through this session is consistent, and what it changes
// is seen whole or not at all, by others, by commits and by checkpoints. There is
// no way back: what do has changed stays, also if it returns an error or panics.
//
// do uses this session, with plain calls, batches or streams, for these keys only
// (ErrNotLocked); it is short, does not commit, checkpoint or close the store, and
// does not wait for whoever may be waiting for one of the keys. What the session
// has under way is completed before keys are locked, and again before they are
// unlocked. Atomically does not nest. A call within do that would have to wait for do's own
// end is ErrHoldsLocks instead: of this session; and, made by the same goroutine, of another
// session or of the store. That a call from another goroutine waits for do is not found out.
func (s *Session) Atomically(ctx context.Context, keys [][]byte, do func() error) error {
	return s.locked(ctx, keys, alone, do)
}

// ReadAtomically is [Session.Atomically] for what only reads: others may read the
// keys meanwhile, and nobody changes them.
func (s *Session) ReadAtomically(ctx context.Context, keys [][]byte, do func() error) error {
	return s.locked(ctx, keys, shared, do)
}

// Atomically is [Session.Atomically] for callers who hold no session: do is lent
// one.
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
	before := s.ctx
	s.ctx = ctx
	defer func() { s.ctx = before }()
	if err := s.completeAll(ctx); err != nil {
		return err
	}
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
	if err := st.share(ctx, &st.transactions); err != nil {
		return err
	}
	if err := st.guard(); err != nil {
		st.transactions.RUnlock()
		return err
	}
	s.stripes = s.stripes[:0]
	for _, key := range keys {
		s.stripes = append(s.stripes, stripeOf(s.hash(key)))
	}
	slices.Sort(s.stripes)
	s.stripes = slices.Compact(s.stripes)
	for i, n := range s.stripes {
		if err := st.locks.stripe(n).lock(ctx, c, st.mayWait); err != nil {
			s.stripes = s.stripes[:i]
			s.release(c)
			return err
		}
	}
	s.holds = c
	mem.StoreRelease(&s.holder, goroutine.Self()|1)
	return nil
}

func (s *Session) unlock() {
	mem.StoreRelease(&s.holder, 0)
	c := s.holds
	s.holds = claim{}
	s.release(c)
}

// release gives back what lock has taken.
func (s *Session) release(c claim) {
	for _, n := range s.stripes {
		s.store.locks.stripe(n).release(c)
	}
	s.store.transactions.RUnlock()
}

// share takes a lock of barriers for reading, unless the barrier waits for this goroutine,
// or ctx ends while the barrier has the lock.
func (st *Store) share(ctx context.Context, mu *sync.RWMutex) error {
	if mu.TryRLock() {
		return nil
	}
	if err := st.mayWait(); err != nil {
		return err
	}
	if err := lock(ctx, readLock{mu}); err != nil {
		return fmt.Errorf("kv: waiting for a commit or checkpoint: %w", err)
	}
	return nil
}

// readLock is a lock for reading as a sync.Locker.
type readLock struct{ mu *sync.RWMutex }

func (l readLock) Lock()         { l.mu.RLock() }
func (l readLock) TryLock() bool { return l.mu.TryRLock() }
func (l readLock) Unlock()       { l.mu.RUnlock() }

// guard returns when the operations of all sessions look at stripes. The caller
// holds transactions, and so nobody changes that.
func (st *Store) guard() error {
	l := &st.locks
	if !l.recent.Load() {
		l.recent.Store(true)
	}
	if l.ready.Load() {
		return nil
	}
	if err := st.inModifier(); err != nil { // the epoch would not end
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready.Load() {
		return nil
	}
	if l.stripes == nil {
		l.stripes = new([1 << stripeBits]stripe)
	}
	l.guarded.Store(true)
	st.epoch.Wait(st.epoch.Bump())
	l.ready.Store(true)
	if l.idle == nil {
		l.idle = time.AfterFunc(guardTime, st.unguard)
	} else {
		l.idle.Reset(guardTime)
	}
	return nil
}

// unguard ends the guard, if nobody has locked anything lately; else it comes back.
func (st *Store) unguard() {
	l := &st.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recent.Swap(false) || !st.transactions.TryLock() {
		l.idle.Reset(guardTime)
		return
	}
	defer st.transactions.Unlock()
	l.guarded.Store(false)
	l.ready.Store(false)
	st.epoch.Bump()
}

// pass is what an operation of a restricted session needs before it is tried: the
// stripe of its key, for release. The holder of locks needs none, but must have
// locked the key. ok is false where somebody else has.
func (s *Session) pass(kind OpKind, hash uint64) (at *stripe, c claim, err error, ok bool) {
	c = toRead
	if kind.changes() {
		c = toChange
	}
	if kind.changes() && s.store.suspects.Load() > 0 {
		if err := s.store.inModifier(); err != nil {
			return nil, claim{}, err, true
		}
	}
	n := stripeOf(hash)
	if s.holds.adds == 0 {
		at = s.store.locks.stripe(n)
		return at, c, nil, at.try(c)
	}
	if _, found := slices.BinarySearch(s.stripes, n); !found {
		err = ErrNotLocked
	} else if s.holds == shared && kind.changes() {
		err = fmt.Errorf("%w but for reading", ErrNotLocked)
	}
	return nil, claim{}, err, true
}
