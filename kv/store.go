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
)

// Store is a key-value store. Its methods are safe for concurrent use.
type Store struct {
	opts  Options
	dev   device.Device
	epoch *epoch.Table
	index atomic.Pointer[table] // changed by grow only
	log   *hlog.Log
	cache *readcache.Cache // nil: none
	hash  func([]byte) uint64
	now   func() int64 // milliseconds of Unix time

	resizing   chan struct{}  // holds one while the index grows, or while somebody wants it not to
	growths    atomic.Uint64  // times that it has doubled
	growing    atomic.Bool    // nobody needs to start growing it in the background
	background sync.WaitGroup // what was started there

	committing sync.Mutex // one Commit at a time
	sizing     sync.Mutex // one SetMemory at a time
	compacting sync.Mutex // one Compact at a time; taken before committing
	compaction compactionCounts

	settledTo atomic.Int64 // everything below is written
	stops     stops        // of scans

	mu       sync.Mutex
	closed   bool
	sessions map[*Session]struct{}
	idle     []*Session             // of those, the store's own that nobody has borrowed
	named    map[string]*Session    // of those, the ones with a name
	ended    map[string]CommitPoint // of named sessions that are not open, or were once
	durable  map[string]CommitPoint // as of the last commit or checkpoint
	past     Metrics                // counts of closed sessions
}

// Open opens the store that is on the device, or makes a new one there. It finds
// what the last Commit or Close covered. If it fails, the device is still the
// caller's to close.
func Open(opts Options) (*Store, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	meta, err := readMeta(opts.Device)
	if err != nil {
		return nil, err
	}
	made := meta == nil
	if made {
		meta = &storeMeta{
			KeySize: opts.KeySize, ValueSize: opts.ValueSize,
			Begin: hlog.FirstAddress, Tail: hlog.FirstAddress,
		}
	} else if err := meta.match(&opts); err != nil {
		return nil, err
	}
	if err := opts.Device.Start(meta.Tail); err != nil {
		return nil, fmt.Errorf("kv: starting the device at %d: %w", meta.Tail, err)
	}
	st := &Store{
		opts:     opts,
		dev:      opts.Device,
		epoch:    epoch.New(),
		hash:     opts.hash,
		now:      opts.now,
		resizing: make(chan struct{}, 1),
		sessions: make(map[*Session]struct{}),
		named:    make(map[string]*Session),
		ended:    make(map[string]CommitPoint),
	}
	if st.hash == nil {
		st.hash = hashKey
	}
	if st.now == nil {
		st.now = func() int64 { return time.Now().UnixMilli() }
	}
	st.growing.Store(true) // until it is open
	if err := st.makeIndex(meta.IndexBits); err != nil {
		return nil, err
	}
	layout := hlog.VariableLayout()
	if opts.KeySize > 0 {
		layout = hlog.FixedLayout(opts.KeySize, opts.ValueSize)
	}
	forLog, forCache := opts.shares(opts.Memory)
	most, _ := opts.shares(opts.MaxMemory)
	st.log, err = hlog.Open(hlog.Config{
		Device: opts.Device, Epoch: st.epoch, Layout: layout,
		Logger: opts.Logger, Listener: opts.Events.ofLog(),
		Memory: forLog, MaxMemory: most, PageSize: opts.PageSize, MutableFraction: opts.MutableFraction,
		Begin: meta.Begin, Tail: meta.Tail,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kv: %w", err), st.index.Load().free())
	}
	if st.cache, err = openCache(forCache, layout, &opts); err != nil {
		return nil, errors.Join(fmt.Errorf("kv: %w", err), st.log.Close(), st.index.Load().free())
	}
	if made {
		err = st.writeMeta(meta.Tail)
	} else {
		err = st.log.Scan(meta.Begin, meta.Tail, func(address int64, im hlog.Image) error {
			return st.replay(st.hash(im.Key), address)
		})
		if errors.Is(err, hlog.ErrCorrupt) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kv: opening the store: %w", err), st.log.Close(), st.freeMemory())
	}
	st.growing.Store(false)
	return st, nil
}

// Commit makes everything written before it durable, as far as the device's
// commit point goes: by default it survives a crash of the process and the loss
// of every tier but the last. Operations go on meanwhile.
func (st *Store) Commit(ctx context.Context) error {
	st.committing.Lock()
	defer st.committing.Unlock()
	st.mu.Lock()
	closed := st.closed
	st.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return st.commit(ctx)
}

func (st *Store) commit(ctx context.Context) error {
	var tail int64
	st.exclusive(func() { tail = st.log.ShiftReadOnly() })
	err := st.log.Persist(ctx, tail)
	if err == nil {
		err = st.writeMeta(tail)
	}
	if err != nil {
		return fmt.Errorf("kv: commit: %w", err)
	}
	return nil
}

// Close commits and closes the store and its device. All sessions must have been
// closed; if one has not, Close says so and changes nothing. After any other
// error the store is closed, and what was not committed is lost.
func (st *Store) Close() error {
	st.committing.Lock()
	defer st.committing.Unlock()
	st.sizing.Lock()
	defer st.sizing.Unlock()
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return nil
	}
	if open := len(st.sessions) - len(st.idle); open > 0 {
		st.mu.Unlock()
		return fmt.Errorf("kv: closing the store: %d sessions are still open", open)
	}
	st.closed = true
	idle := st.idle
	st.idle = nil
	st.mu.Unlock()

	var errs []error
	for _, s := range idle {
		errs = append(errs, s.Close())
	}
	errs = append(errs, st.commit(context.Background()), st.log.Close(), st.freeMemory())
	if err := st.dev.Close(); err != nil {
		errs = append(errs, fmt.Errorf("kv: closing the device: %w", err))
	}
	return errors.Join(errs...)
}

// Read is [Session.Read] for callers who hold no session.
func (st *Store) Read(key, dst []byte) (value []byte, err error) {
	value = dst
	err = st.with(func(s *Session) error {
		value, err = s.Read(key, dst)
		return err
	})
	return value, err
}

// Upsert is [Session.Upsert] for callers who hold no session.
func (st *Store) Upsert(key, value []byte) error {
	return st.with(func(s *Session) error { return s.Upsert(key, value) })
}

// RMW is [Session.RMW] for callers who hold no session.
func (st *Store) RMW(key []byte, modify Modifier) error {
	return st.with(func(s *Session) error { return s.RMW(key, modify) })
}

// Insert is [Session.Insert] for callers who hold no session.
func (st *Store) Insert(key, value []byte) error {
	return st.with(func(s *Session) error { return s.Insert(key, value) })
}

// Run is [Session.Run] for callers who hold no session.
func (st *Store) Run(op *Op) error {
	return st.with(func(s *Session) error { return s.Run(op) })
}

// Delete is [Session.Delete] for callers who hold no session.
func (st *Store) Delete(key []byte) error {
	return st.with(func(s *Session) error { return s.Delete(key) })
}

// with lends one of the store's own sessions. There are as many as were ever
// needed at once.
func (st *Store) with(use func(*Session) error) error {
	st.mu.Lock()
	var s *Session
	if n := len(st.idle); n > 0 {
		s = st.idle[n-1]
		st.idle = st.idle[:n-1]
	}
	st.mu.Unlock()
	if s == nil {
		s = st.NewSession()
	}
	defer func() {
		st.mu.Lock()
		st.idle = append(st.idle, s)
		st.mu.Unlock()
	}()
	return use(s)
}

// openSession takes a session in, unless the store is closed.
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
	s.slot = st.epoch.Register()
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
}

// Metrics says what the store has done and what it uses.
func (st *Store) Metrics() Metrics {
	st.mu.Lock()
	m := st.past
	for s := range st.sessions {
		s.counts.addTo(&m)
	}
	st.mu.Unlock()
	st.compaction.addTo(&m)
	m.Begin, m.Head, m.ReadOnly, m.Tail = st.log.Begin(), st.log.Head(), st.log.ReadOnly(), st.log.Tail()
	m.MemoryBytes, m.MemoryBudget, m.IndexBytes = m.Tail-m.Head, st.log.Budget(), st.indexBytes()
	st.addCacheTo(&m)
	return m
}
