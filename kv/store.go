package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/readcache"
	"github.com/redykv/redykv/kv/internal/gate"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/keycount"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/phase"
	"github.com/redykv/redykv/ssdtier"
)

// Store is a key-value store. Its methods are safe for concurrent use.
type Store struct {
	opts    Options
	dev     device.Device
	release func() // releases the claim of the device: see device.Claim
	epoch   *epoch.Table
	index   atomic.Pointer[index.Table] // changed by grow and Clear
	log     *hlog.Log
	cache   *readcache.Cache // nil without a read cache
	now     func() int64     // current time in milliseconds of Unix time

	keyHash index.Hash          // set before the first key is hashed
	hash    func([]byte) uint64 // keyHash.Of

	resizing   sync.Mutex     // its holder grows the index or keeps it from growing
	growing    atomic.Bool    // set while growSoon has nothing to start
	background sync.WaitGroup // growth started by growSoon, what Clear and commits free

	locks locks
	gate  gate.Gate // of transactions and whole batches, which no barrier cuts

	keyCounters *keycount.Counters // nil if keys are not counted
	sweeps      sweeps             // unfinished sweeps of scans in steps

	closing      sync.Mutex // serializes Close
	sizing       sync.Mutex // serializes SetMemory
	checkpointer checkpointer

	// snapshotTail is the tail of the snapshot that is being written, or 0. Records below it
	// are not updated in place. It changes only in barriers.
	snapshotTail int64
	recovered    RecoveryReport
	automatic    automatic

	autoCompactor autoCompactor
	sampling      sampling

	mu       sync.Mutex
	closed   bool
	sessions map[*Session]struct{}
	pool     pool                   // idle sessions of the store's own; part of sessions
	named    map[string]*Session    // sessions with a name; part of sessions
	ended    map[string]CommitPoint // commit points of named sessions at their last close
	past     Metrics                // counts of closed sessions and of what has no session
	keysPast classCounts            // keys added, less removed, by closed sessions and earlier processes
}

// Open opens the store on the device, or makes a new one there. It recovers what the last
// Commit, Checkpoint or Close covered, or the checkpoint named by Options.Recover;
// [Store.Recovery] describes the result. If Open fails, the caller must close the device. The
// error is device.ErrClaimed if another open store has the device, or a tier of it.
func Open(opts Options) (*Store, error) { return OpenContext(context.Background(), opts) }

// OpenContext is Open that returns an error soon when ctx ends, with the cause of ctx. Then it has changed
// nothing that another Open needs. If the error is also ErrOpening, as the device does not answer a read,
// the opening has the device and closes it when it ends: the caller must not.
func OpenContext(ctx context.Context, opts Options) (*Store, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	release, err := device.Claim(opts.Device)
	if err != nil {
		return nil, fmt.Errorf("kv: opening the store: %w", err)
	}
	st, err := openUntil(ctx, opts, release)
	if err != nil {
		if !errors.Is(err, ErrOpening) {
			release()
		}
		return nil, err
	}
	st.release = release
	st.opts.Events.Recovered(RecoveryInfo{st.recovered})
	st.startAutomatic()
	if opts.SampleAccesses {
		st.startSampling()
	}
	return st, nil
}

// openGrace is how long OpenContext waits after the end of its context for the opening to end. Tests change it.
var openGrace = time.Second

// openUntil is openClaimed that ends soon after ctx, also while the device does not answer. Then a
// goroutine owns the device and its claim, and all memory that is read into, until the opening ends.
func openUntil(ctx context.Context, opts Options, release func()) (*Store, error) {
	if ctx.Done() == nil {
		return openClaimed(ctx, opts)
	}
	type result struct {
		st  *Store
		err error
	}
	opened := make(chan result, 1)
	go func() {
		st, err := openClaimed(ctx, opts)
		opened <- result{st, err}
	}()
	select {
	case r := <-opened:
		return r.st, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-opened:
		return r.st, r.err
	case <-time.After(openGrace):
	}
	go func() {
		r := <-opened
		if r.st != nil {
			r.err = r.st.unload()
		}
		err := errors.Join(r.err, opts.Device.Close())
		release()
		opts.Logger.Warn("an opening of the store whose context had ended has ended", "err", err)
	}()
	return nil, fmt.Errorf("kv: opening the store: %w: %w", ErrOpening, context.Cause(ctx))
}

// openClaimed is Open for a device that this store has claimed.
func openClaimed(ctx context.Context, opts Options) (*Store, error) {
	st := newStore(opts)
	r, err := st.recover(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.load(); err != nil {
		return nil, err
	}
	err = r.finish()
	if p := &opts.Checkpoints; err == nil && st.checkpointer.volatile && (p.Every > 0 || p.EveryBytes > 0) {
		err = fmt.Errorf("Options.Checkpoints: the device keeps no metadata: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kv: opening the store: %w", err), st.unload())
	}
	st.growing.Store(false)
	return st, nil
}

// newStore returns an empty store. ensureDefaults has been called on opts.
func newStore(opts Options) *Store {
	st := &Store{
		opts:     opts,
		dev:      opts.Device,
		epoch:    epoch.New(),
		hash:     opts.hash,
		now:      opts.now,
		sessions: make(map[*Session]struct{}),
		pool:     pool{after: trimAfter},
		named:    make(map[string]*Session),
		ended:    make(map[string]CommitPoint),
	}
	st.pool.settled = sync.NewCond(&st.mu)
	if st.hash == nil {
		st.hash = st.keyHash.Of
	}
	if st.now == nil {
		st.now = func() int64 { return time.Now().UnixMilli() }
	}
	if opts.CountKeys {
		st.keyCounters = new(keycount.Counters)
	}
	st.growing.Store(true) // until it is open
	return st
}

// WriteError returns the error of writes that need room in memory while the device takes no more of
// the log, as when it is full, or nil. The store tries again by itself if the error may pass. After
// Close it is an error too.
func (st *Store) WriteError() error {
	if err := st.log.Err(); err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	return nil
}

func (st *Store) isClosed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed
}

// Close commits and closes the store and its device. If the next Open would read the log for longer
// than a copy of the index, Close then writes one, as a checkpoint of kind [Index] does;
// it may be killed meanwhile. All sessions must have been closed before; otherwise Close returns an
// error and changes nothing. After any other error the store is closed, and writes since the last
// commit are lost.
func (st *Store) Close() error {
	st.closing.Lock()
	defer st.closing.Unlock()
	resume := st.autoCompactor.pause()
	defer resume()
	st.mu.Lock()
	for st.pool.settling > 0 {
		st.pool.settled.Wait()
	}
	if st.closed {
		st.mu.Unlock()
		return nil
	}
	if open := len(st.sessions) - len(st.pool.idle); open > 0 {
		st.mu.Unlock()
		return fmt.Errorf("kv: closing the store: %d sessions are open; close them first", open)
	}
	st.closed = true
	idle := st.pool.idle
	st.pool.idle = nil
	if st.pool.trim != nil {
		st.pool.trim.Stop()
	}
	st.mu.Unlock()
	// Nothing begins from here on; what has begun ends.
	st.automatic.stop()
	st.sampling.switching.Lock() // a later SetSampling finds the store closed
	st.stopSampling()
	st.sampling.switching.Unlock()
	st.sizing.Lock()
	defer st.sizing.Unlock()
	if err := st.begin(context.Background(), phase.Close, "closing the store"); err != nil {
		return err // cannot happen: st.closing is held
	}

	var errs []error
	for _, s := range idle {
		errs = append(errs, s.Close())
	}
	err := st.commit(context.Background())
	if errors.Is(err, device.ErrNoSpace) && st.dropCleared(context.Background()) {
		err = st.commit(context.Background())
	}
	errs = append(errs, err)
	if err == nil {
		st.leaveIndex()
	}
	if err == nil {
		// A small commit does not wait for the writes to the log, and the log drops what it has
		// not begun to write.
		errs = append(errs, st.log.Write(context.Background(), st.log.Tail()))
	}
	st.collect() // objects of the states before
	errs = append(errs, st.log.Close(), st.freeMemory())
	if err := st.dev.Close(); err != nil {
		errs = append(errs, fmt.Errorf("kv: closing the device: %w", err))
	}
	st.release()
	return errors.Join(errs...)
}

// Read is [Session.Read] for callers without a session. ctx bounds the waiting of this call
// and of the other operations of Store: see [Session.SetContext]. They also wait if no session
// is free.
func (st *Store) Read(ctx context.Context, key, dst []byte) (value []byte, err error) {
	value = dst
	err = st.with(ctx, func(s *Session) error {
		value, err = s.Read(key, dst)
		return err
	})
	return value, err
}

// Upsert is [Session.Upsert] for callers without a session.
func (st *Store) Upsert(ctx context.Context, key, value []byte) error {
	return st.with(ctx, func(s *Session) error { return s.Upsert(key, value) })
}

// UpsertTTL is [Session.UpsertTTL] for callers without a session.
func (st *Store) UpsertTTL(ctx context.Context, key, value []byte, ttl time.Duration) error {
	return st.with(ctx, func(s *Session) error { return s.UpsertTTL(key, value, ttl) })
}

// RMW is [Session.RMW] for callers without a session.
func (st *Store) RMW(ctx context.Context, key []byte, modify Modifier) error {
	return st.with(ctx, func(s *Session) error { return s.RMW(key, modify) })
}

// Insert is [Session.Insert] for callers without a session.
func (st *Store) Insert(ctx context.Context, key, value []byte) error {
	return st.with(ctx, func(s *Session) error { return s.Insert(key, value) })
}

// Run is [Session.Run] for callers without a session.
func (st *Store) Run(ctx context.Context, op *Op) error {
	return st.with(ctx, func(s *Session) error { return s.Run(op) })
}

// Delete is [Session.Delete] for callers without a session.
func (st *Store) Delete(ctx context.Context, key []byte) error {
	return st.with(ctx, func(s *Session) error { return s.Delete(key) })
}

// openSession registers a session, unless the store is closed.
func (st *Store) openSession(s *Session) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.closed:
		return ErrClosed
	case s.name == "":
	case st.named[s.name] != nil:
		return fmt.Errorf("%w: session %q is open", ErrNameInUse, s.name)
	default:
		s.before = st.ended[s.name]
		st.named[s.name] = s
	}
	st.epoch.Join(&s.handle)
	s.inAssembly = haveAssembly && s.words && !s.handle.Ordered()
	s.view.current = s.handle.Current()
	st.sessions[s] = struct{}{}
	return nil
}

func (st *Store) removeSession(s *Session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.sessions, s)
	if s.name != "" {
		delete(st.named, s.name)
		st.ended[s.name] = s.commitPoint()
	}
	s.counts.addTo(&st.past)
	if st.keyCounters != nil {
		for class := range st.keyCounters.All() {
			st.keysPast[class] += s.keys[class].loadSigned()
		}
	}
}

// OpenDir opens the store in a directory, and creates the directory if there is none.
// opts.Device must be nil: the device is the directory, opened with the defaults of
// [ssdtier.Options]. [Store.Close] closes both. To open a store on any other device, use
// [Open].
func OpenDir(dir string, opts Options) (*Store, error) {
	if opts.Device != nil {
		return nil, errors.New("kv: OpenDir with Options.Device: the device is the directory; use Open for another one")
	}
	ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("kv: opening %s: %w", dir, err)
	}
	opts.Device = ssd
	store, err := Open(opts)
	if err != nil {
		return nil, fmt.Errorf("kv: opening %s: %w", dir, errors.Join(err, ssd.Close()))
	}
	return store, nil
}

// Clear removes all keys at one moment: each operation, transaction ([Session.Atomically]) and
// whole batch ([Session.DoWhole]) takes effect before it or after it. Its time does not depend
// on the number of keys. Like other changes it is durable with the next Commit; after an
// earlier crash the keys are back. That commit also starts to free the space on the device, except
// what kept checkpoints need. If the device is full, Clear commits, and the next write finds space.
//
// If ctx ends while Clear waits for whole batches and for sessions that hold locks, nothing is
// removed.
func (st *Store) Clear(ctx context.Context) error {
	if st.isClosed() {
		return ErrClosed
	}
	if st.log.Begin() == st.log.Tail() { // Begin is read first: at that moment the log was empty
		return nil
	}
	// The log now begins at its tail. Index entries with lower addresses refer to no record,
	// and pending operations on such records find nothing or begin again. Making a new index is
	// faster than clearing the present one.
	fresh, err := st.newIndex(0)
	if err != nil {
		st.opts.Logger.Warn("the index keeps its memory though there are no keys", "err", err)
		fresh = nil
	}
	closed := false
	err = st.exclusive(ctx, func() {
		if closed = st.isClosed(); closed {
			return
		}
		st.log.Empty()
		st.forgetKeys()
		empty := new(manifest.State)
		st.takeState(empty)
		st.checkpointer.cleared.Store(empty)
		if fresh == nil {
			return
		}
		if !st.resizing.TryLock() {
			return // the index is growing or being copied, and is kept: its entries refer to no record
		}
		// Freeing gigabytes takes a while. No session is inside an epoch in which it could
		// have loaded the old index.
		old := st.index.Swap(fresh)
		st.background.Go(func() {
			st.freeIndex(old)
			st.resizing.Unlock()
		})
		fresh = nil
	})
	if fresh != nil {
		st.freeIndex(fresh)
	}
	if closed {
		return ErrClosed
	}
	if err != nil {
		return fmt.Errorf("kv: clearing the store: %w", err)
	}
	if errors.Is(st.log.Err(), device.ErrNoSpace) {
		return st.Commit(ctx)
	}
	return nil
}

func (st *Store) freeIndex(t *index.Table) {
	if err := t.Free(); err != nil {
		st.opts.Logger.Warn("giving the memory of an index back", "err", err)
	}
}
