package kv

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/readcache"
)

// Session is one goroutine's way to a store. It is used by one goroutine at a
// time and closed before the store.
//
// Operations on the same key take effect in the order in which the session was
// given them. A read that is under way when a later write of its key is
// submitted may return the value from before that write.
//
// There is one engine and three ways in. Batches and streams pass through lanes
// (lane.go) that ask for index bucket and record ahead of their use, and end in
// tryAt (try.go). Plain calls find the bucket themselves and end there too. What
// cannot be finished at once goes the general way: begin tries again until it is
// done or needs a record from the device; then it gets a flight (flights.go) and
// goes on when the record has come.
type Session struct {
	// What every operation looks at.
	slot  *epoch.Slot
	seen  uint64 // the epoch as of which the following stands
	probe probe
	view  hlog.View
	table *table
	words bool // records are of 8-byte keys and values: see words.go
	// direct says that plain calls may go straight to such records: nothing that
	// the session was given before is under way.
	direct bool
	// restricted says that operations must go the general way, and look at stripes
	// (see locks.go): the probe is closed.
	restricted bool
	holds      claim    // of stripes, in Atomically; else zero
	stripes    []uint32 // which, in ascending order

	// readOnly is the log's marker. view has the floor of a snapshot in its place
	// while one is made, where that is higher: see Store.floorAt.
	readOnly int64

	name   string      // "": nobody asks for its commit point
	before CommitPoint // of the sessions of that name before this one

	layout    hlog.Layout
	keySize   int  // 0: variable
	valueSize int  // the same
	fixed     bool // neither is 0, and such a record fits a page
	record    int  // bytes of a record to ask for ahead
	hash      func([]byte) uint64
	log       *hlog.Log
	store     *Store
	cache     *readcache.Cache // nil: none
	queue     device.Queue     // nil until the first cold operation
	walker    *hlog.Walker     // nil until the session is lent to a walk of the log
	traces    []trace          // of a batch of opNewest or opMove
	unusable  error            // closed; or the queue cannot be waited for, and what is under way never ends

	plain   Op     // of the plain calls
	update  Update // of the Modifier that is asked
	old     []byte // scratch: a value being modified…
	fresh   []byte // …and what it becomes
	oldWord uint64 // the former, of 8 bytes
	zeros   []byte // the value of a tombstone
	frozen  frozen // of the operation that is tried

	lanes    [2]lane
	filling  *lane // takes operations, whose buckets are on the way
	scanned  *lane // holds operations whose records are on the way
	streamed int   // operations of Submit that are not in polled yet
	polled   opRing

	flights   []flight    // the session's cold operations, by number
	free      []uint32    // numbers of flights not under way
	rmws      [256]uint16 // read-modify-writes under way, by some bits of the hash…
	modifying int         // …and all of them
	batch     int         // flights of a batch or plain call, which Poll must not see
	batchErr  error       // the first error of the batch
	unrung    int         // reads enqueued since the last doorbell
	arrivals  [64]device.Completion
	taken     int // arrivals[taken:arrived] have not been looked at yet
	arrived   int

	counts counts
}

// doorbellEvery is how many cold reads are enqueued before they are submitted
// without anybody waiting for them.
const doorbellEvery = 32

// NewSession opens a session. Its queue on the device is opened by the first
// operation that needs it. On a closed store every operation returns ErrClosed.
func (st *Store) NewSession() *Session {
	s := st.makeSession()
	if err := st.openSession(s); err != nil {
		s.stop(err)
	}
	return s
}

// makeSession makes what openSession opens.
func (st *Store) makeSession() *Session {
	layout := st.log.Layout()
	s := &Session{
		store:     st,
		log:       st.log,
		cache:     st.cache,
		layout:    layout,
		keySize:   st.opts.KeySize,
		valueSize: st.opts.ValueSize,
		words:     vectors && st.opts.KeySize == 8 && st.opts.ValueSize == 8 && st.opts.hash == nil,
		record:    layout.Size(st.opts.KeySize, st.opts.ValueSize, false),
		hash:      st.hash,
		table:     st.index.Load(),
		zeros:     make([]byte, st.opts.ValueSize),
		fresh:     make([]byte, 0, max(8, st.opts.ValueSize)),
		flights:   make([]flight, st.opts.QueueDepth),
		free:      make([]uint32, 0, st.opts.QueueDepth),
		polled:    newOpRing(st.opts.QueueDepth),
	}
	if !layout.Fixed() {
		s.record = 2 * 64 // lengths and key, and the start of the value
	}
	s.fixed = layout.Fixed() && layout.Size(s.keySize, s.valueSize, true) <= st.log.PageSize()-hlog.FirstAddress
	s.probe.last = int64(s.record) - 1
	s.filling, s.scanned = &s.lanes[0], &s.lanes[1]
	for i := range s.flights {
		s.free = append(s.free, uint32(len(s.flights)-1-i))
	}
	s.direct = s.words
	return s
}

// stop makes the session take no more operations.
func (s *Session) stop(err error) {
	s.unusable = err
	s.direct = false
}

// Close ends the session after what it has under way.
func (s *Session) Close() error {
	switch {
	case errors.Is(s.unusable, ErrClosed):
		return nil
	case s.holds.adds != 0:
		return fmt.Errorf("kv: closing session: %w", errHoldsLocks)
	}
	if err := s.drain(); err != nil {
		return err
	}
	s.stop(ErrClosed)
	s.slot.Unregister()
	s.store.removeSession(s)
	var err error
	if s.queue != nil {
		err = s.queue.Close()
	}
	if s.walker != nil {
		err = errors.Join(err, s.walker.Close())
	}
	if err != nil {
		return fmt.Errorf("kv: closing session: %w", err)
	}
	return nil
}

// drain returns when nothing is under way.
func (s *Session) drain() error {
	s.flush()
	for len(s.free) < len(s.flights) {
		if err := s.await(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// enter begins a stay in an epoch.
func (s *Session) enter() {
	if !s.slot.Reenter(s.seen) {
		s.enterAnew()
	}
}

// enterAnew is enter in an epoch that the session has not seen.
func (s *Session) enterAnew() {
	s.seen = s.slot.Enter()
	s.view = s.log.View()
	s.readOnly = s.view.ReadOnly
	s.view.ReadOnly = max(s.view.ReadOnly, s.store.floor)
	s.table = s.store.index.Load()
	s.probe.look(s.table, &s.view)
	s.probe.seen = s.seen
	if s.restricted = s.store.locks.guarded.Load(); s.restricted {
		s.probe.close()
	}
}

// leave ends it.
func (s *Session) leave() { s.slot.Leave() }

// Read appends the value of key to dst and returns the result, or dst and
// ErrNotFound.
func (s *Session) Read(key, dst []byte) ([]byte, error) {
	if s.direct && len(key) == 8 && cap(dst)-len(dst) >= 8 {
		end := unsafe.Add(unsafe.Pointer(unsafe.SliceData(dst)), len(dst))
		if s.readDirect(unsafe.Pointer(unsafe.SliceData(key)), end) {
			return dst[:len(dst)+8], nil
		}
	}
	return s.readAnyhow(key, dst)
}

// readAnyhow is Read in general.
func (s *Session) readAnyhow(key, dst []byte) ([]byte, error) {
	s.plain = Op{Kind: OpRead, Key: key, Value: dst}
	err := s.run(&s.plain, len(dst))
	return s.plain.Value, err
}

// Upsert stores value under key, for good.
func (s *Session) Upsert(key, value []byte) error {
	if s.direct && len(key) == 8 && len(value) == 8 &&
		s.storeDirect(unsafe.Pointer(unsafe.SliceData(key)), unsafe.Pointer(unsafe.SliceData(value))) {
		return nil
	}
	return s.upsertAnyhow(key, value)
}

func (s *Session) upsertAnyhow(key, value []byte) error {
	s.plain = Op{Kind: OpUpsert, Key: key, Value: value}
	return s.run(&s.plain, 0)
}

// RMW changes the record of key as modify says, atomically.
func (s *Session) RMW(key []byte, modify Modifier) error {
	if s.direct && len(key) == 8 && modify != nil {
		if s.rmwWord(loadWord(key), modify) {
			return nil
		}
	}
	s.plain = Op{Kind: OpRMW, Key: key, Modify: modify}
	return s.run(&s.plain, 0)
}

// Insert stores value under key if the key is not there; else it returns
// ErrExists.
func (s *Session) Insert(key, value []byte) error {
	s.plain = Op{Kind: OpInsert, Key: key, Value: value}
	return s.run(&s.plain, 0)
}

// Delete removes key. A key that is not there is no error.
func (s *Session) Delete(key []byte) error {
	s.plain = Op{Kind: OpDelete, Key: key}
	return s.run(&s.plain, 0)
}

// Run carries one operation out and returns its Err: the plain call for what the
// others have no room for.
func (s *Session) Run(op *Op) error { return s.run(op, 0) }

// run carries one operation out, whole. keep is how much of a read's Value stays
// in front.
func (s *Session) run(op *Op, keep int) error {
	if op.Err = s.unusable; op.Err != nil {
		return op.Err
	}
	s.flush()
	if !s.begin(op, s.hash(op.Key), keep, false) {
		if err := s.landAll(); err != nil {
			return err
		}
	}
	s.direct = s.words && s.streamed|s.batch == 0
	return op.Err
}

// landAll returns when no plain call's or batch's operation is under way.
func (s *Session) landAll() error {
	for s.batch > 0 {
		if err := s.await(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// begin tries an operation and says whether it is complete; if not, it has a
// flight.
func (s *Session) begin(op *Op, hash uint64, keep int, stream bool) bool {
	op.Err = s.check(op)
	for op.Err == nil && s.rmws[hashByte(hash)] > 0 { // it comes after the one before it on this key
		op.Err = s.await(context.Background())
	}
	if op.Err != nil {
		s.refuse()
		return true
	}
	where, cold := s.attempt(op, hash, keep, nil)
	if !cold {
		return true
	}
	if op.Err = s.board(); op.Err != nil {
		s.refuse()
		return true
	}
	s.enter()
	n := s.depart(op, hash, keep, stream, where)
	s.leave()
	s.seek(n)
	if s.unrung >= doorbellEvery {
		s.ring()
	}
	return false
}

// hashByte are bits of the hash that choose neither bucket nor tag alone.
func hashByte(hash uint64) byte { return byte(hash >> 40) }

// check refuses what cannot be a record.
func (s *Session) check(op *Op) error {
	value := len(op.Value)
	switch op.Kind {
	case OpUpsert, OpInsert:
		if op.Expires < 0 {
			return errBadExpiry(op.Expires)
		}
	case OpRMW:
		if op.Modify == nil {
			return fmt.Errorf("kv: RMW without a Modifier")
		}
		value = s.valueSize
	case OpRead, OpDelete:
		value = s.valueSize
	default:
		if op.trace != 0 {
			return nil // its record is one already
		}
		return fmt.Errorf("kv: unknown operation %d", op.Kind)
	}
	return s.checkSizes(len(op.Key), value)
}

func (s *Session) checkSizes(key, value int) error {
	if key == s.keySize && value == s.valueSize && s.fixed {
		return nil
	}
	err := s.layout.Check(key, value)
	if err == nil && key == 0 {
		err = errors.New("empty key")
	}
	if size := s.layout.Size(key, value, true); err == nil && size > s.log.PageSize()-hlog.FirstAddress {
		err = fmt.Errorf("record of %d bytes in pages of %d (Options.PageSize)", size, s.log.PageSize())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSize, err)
	}
	return nil
}

// attempt tries an operation in memory until it is complete or needs a record
// from the device: then cold is true, and where says which. f is the flight that
// it has already, or nil.
func (s *Session) attempt(op *Op, hash uint64, keep int, f *flight) (where coldAt, cold bool) {
	defer func() {
		if s.frozen.asked {
			s.thaw()
		}
	}()
	for {
		outcome, where := s.try(op, hash, keep, f)
		switch outcome {
		case complete:
			return where, false
		case needsRecord:
			return where, true
		case needsSpace:
			if err := s.log.WaitForSpace(); err != nil {
				op.Err = fmt.Errorf("kv: %w", err)
				if f == nil {
					s.refuse()
				}
				return where, false
			}
		case needsQuiet:
			s.quieten()
		case again:
			runtime.Gosched()
		}
	}
}

// try is one attempt under one epoch, in which it also notes that the operation
// is complete. Should the user's code panic in there, the deferred leave keeps it
// from holding the store up.
func (s *Session) try(op *Op, hash uint64, keep int, f *flight) (result outcome, where coldAt) {
	s.enter()
	defer s.leave()
	if s.restricted && op.trace == 0 { // a trace changes nothing that anybody sees
		stripe, claim, err, ok := s.pass(op.Kind, hash)
		if !ok {
			s.thawWithin() // who has locked the key must not wait for this session
			return again, where
		}
		if op.Err = err; stripe != nil {
			defer stripe.release(claim)
		}
	}
	if op.Err == nil {
		result, where = s.tryWithin(op, hash, keep)
	}
	if result == complete {
		s.completed(op.Kind, f)
	}
	return result, where
}

// tryWithin is try within its epoch.
func (s *Session) tryWithin(op *Op, hash uint64, keep int) (outcome, coldAt) {
	slot, e, busy := s.table.locate(hash)
	if slot.p == nil && op.Kind.writes() {
		if slot, e, op.Err = s.table.findOrInsert(hash); op.Err != nil {
			return complete, coldAt{}
		}
		busy = slot.p == nil
	}
	if busy {
		return again, coldAt{}
	}
	return s.tryAt(op, slot, e, keep)
}

// completed notes that an operation has taken effect, or will have none. f is its
// flight, if it has one.
func (s *Session) completed(kind OpKind, f *flight) {
	if f == nil {
		s.counts.ops[kind].inc()
	} else {
		f.serial.Store(0)
	}
}
