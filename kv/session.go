package kv

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/epoch"
)

// Session is one goroutine's way to a store. It is used by one goroutine at a
// time and closed before the store.
//
// Operations on the same key take effect in the order in which the session was
// given them. A read that is under way when a later write of its key is
// submitted may return the value from before that write.
//
// Every operation, plain, batched or streamed, goes the same way: begin tries
// it in memory (try); what needs a record from the device gets a flight and
// goes on when the record has come (flights.go); either way finish ends it.
type Session struct {
	store  *Store
	log    *hlog.Log
	index  *index
	layout hlog.Layout
	epoch  *epoch.Slot
	queue  device.Queue // nil until the first cold operation
	closed bool
	broken error // the queue cannot be waited for: what is under way never ends

	plain Op     // of the plain calls
	old   []byte // scratch: a value being modified…
	fresh []byte // …and what it becomes

	staged   opRing   // submitted and not begun: their index buckets are on the way
	flights  []flight // the session's cold operations, by number
	free     []uint32 // numbers of flights not under way
	unrung   int      // reads enqueued since the last doorbell
	arrivals [64]device.Completion
	taken    int // arrivals[taken:arrived] have not been looked at yet
	arrived  int
	rmws     [256]uint16 // read-modify-writes under way, by some bits of the hash
	batch    int         // flights of a batch or plain call, which Poll must not see
	streamed int         // flights of Submit
	polled   opRing      // completed after Submit and not polled yet

	counts counts
}

const (
	// doorbellEvery is how many cold reads a stream enqueues before it submits
	// them by itself.
	doorbellEvery = 32
	// lookahead is how many operations lie between asking for an index bucket and
	// using it. A random line takes as long from memory as some ten operations
	// take in the cache; without this every one of them would wait for its own.
	lookahead = 16
)

// NewSession opens a session. Its queue on the device is opened by the first
// operation that needs it. On a closed store every operation returns ErrClosed.
func (st *Store) NewSession() *Session {
	s := &Session{
		store:   st,
		log:     st.log,
		index:   st.index,
		layout:  st.log.Layout(),
		flights: make([]flight, st.opts.QueueDepth),
		free:    make([]uint32, 0, st.opts.QueueDepth),
		staged:  newOpRing(lookahead + 1),
		polled:  newOpRing(st.opts.QueueDepth),
	}
	for i := range s.flights {
		s.free = append(s.free, uint32(len(s.flights)-1-i))
	}
	if s.closed = !st.addSession(s); !s.closed {
		s.epoch = st.epoch.Register()
	}
	return s
}

// Close ends the session after what it has under way.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.beginStaged(0)
	for len(s.free) < len(s.flights) {
		if err := s.await(context.Background()); err != nil {
			return err
		}
	}
	s.closed = true
	s.epoch.Unregister()
	s.store.removeSession(s)
	if s.queue == nil {
		return nil
	}
	if err := s.queue.Close(); err != nil {
		return fmt.Errorf("kv: closing session: %w", err)
	}
	return nil
}

// Read appends the value of key to dst and returns the result, or dst and
// ErrNotFound.
func (s *Session) Read(key, dst []byte) ([]byte, error) {
	s.plain = Op{Kind: OpRead, Key: key, Value: dst}
	err := s.run(&s.plain, len(dst))
	return s.plain.Value, err
}

// Upsert stores value under key.
func (s *Session) Upsert(key, value []byte) error {
	s.plain = Op{Kind: OpUpsert, Key: key, Value: value}
	return s.run(&s.plain, 0)
}

// RMW replaces the value of key by what modify makes of it, or of its absence,
// atomically.
func (s *Session) RMW(key []byte, modify Modifier) error {
	s.plain = Op{Kind: OpRMW, Key: key, Modify: modify}
	return s.run(&s.plain, 0)
}

// Delete removes key. A key that is not there is no error.
func (s *Session) Delete(key []byte) error {
	s.plain = Op{Kind: OpDelete, Key: key}
	return s.run(&s.plain, 0)
}

// run carries one operation out, whole.
func (s *Session) run(op *Op, keep int) error {
	if op.Err = s.usable(); op.Err != nil {
		return op.Err
	}
	s.beginStaged(0)
	if !s.begin(op, keep, false) {
		if err := s.landAll(); err != nil {
			return err
		}
	}
	return op.Err
}

// usable says why the session takes no more operations, if so.
func (s *Session) usable() error {
	if s.closed {
		return ErrClosed
	}
	return s.broken
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

// Do carries a batch out, with its cold reads under way together, and returns
// when all are complete. It returns the first error of an operation that is not
// ErrNotFound; each has its own in Op.Err.
func (s *Session) Do(ops []Op) error {
	if err := s.usable(); err != nil {
		return err
	}
	s.beginStaged(0)
	for i := range min(lookahead, len(ops)) {
		s.index.prefetch(s.store.hash(ops[i].Key))
	}
	for i := range ops {
		if next := i + lookahead; next < len(ops) {
			s.index.prefetch(s.store.hash(ops[next].Key))
		}
		s.begin(&ops[i], 0, false)
	}
	if err := s.landAll(); err != nil {
		return err
	}
	for i := range ops {
		if err := ops[i].Err; err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

// Submit starts an operation, which Poll hands back when it is complete.
// ErrQueueFull: QueueDepth operations are under way or waiting to be polled; op
// was not started.
func (s *Session) Submit(op *Op) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.Pending() == len(s.flights) {
		return ErrQueueFull
	}
	s.index.prefetch(s.store.hash(op.Key))
	s.staged.push(op)
	s.beginStaged(lookahead)
	return nil
}

// beginStaged begins operations that Submit staged, the oldest first, until only
// so many are left.
func (s *Session) beginStaged(left int) {
	for s.staged.len() > left {
		if op := s.staged.pop(); s.begin(op, 0, true) {
			s.polled.push(op)
		}
	}
}

// Poll hands back operations that Submit started and that are complete, as many
// as there are and done has room for. It waits for no read.
func (s *Session) Poll(done []*Op) int {
	if s.polled.len() < len(done) {
		s.reap()
	}
	if s.polled.len() == 0 {
		s.beginStaged(0)
		s.reap()
	}
	n := 0
	for ; n < len(done) && s.polled.len() > 0; n++ {
		done[n] = s.polled.pop()
	}
	return n
}

// Wait parks until Poll has something to hand back, or ctx ends. It returns at
// once where nothing is under way.
func (s *Session) Wait(ctx context.Context) error {
	if s.polled.len() == 0 {
		s.beginStaged(0)
	}
	for s.polled.len() == 0 && s.streamed > 0 {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Pending is how many operations Submit started that Poll has not handed back.
func (s *Session) Pending() int { return s.staged.len() + s.streamed + s.polled.len() }

// begin tries an operation and says whether it is complete; if not, it has a
// flight. keep is how much of a read's Value stays in front.
func (s *Session) begin(op *Op, keep int, stream bool) bool {
	op.Err = s.check(op)
	if op.Err != nil {
		return true
	}
	hash := s.store.hash(op.Key)
	for s.rmws[hashByte(hash)] > 0 { // it comes after the one before it on this key
		if op.Err = s.await(context.Background()); op.Err != nil {
			return true
		}
	}
	where, cold := s.attempt(op, hash, keep)
	if !cold {
		s.counts.finished(op.Kind, fromMemory)
		return true
	}
	if op.Err = s.board(); op.Err != nil {
		return true
	}
	s.depart(op, hash, keep, stream, where)
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
	case OpUpsert:
	case OpRMW:
		if op.Modify == nil {
			return fmt.Errorf("kv: RMW without a Modifier")
		}
		fallthrough
	case OpRead, OpDelete:
		value = s.store.opts.ValueSize
	default:
		return fmt.Errorf("kv: unknown operation %d", op.Kind)
	}
	return s.checkSizes(len(op.Key), value)
}

func (s *Session) checkSizes(key, value int) error {
	err := s.layout.Check(key, value)
	if err == nil && key == 0 {
		err = errors.New("empty key")
	}
	if size := s.layout.Size(key, value); err == nil && size > s.log.PageSize()-hlog.FirstAddress {
		err = fmt.Errorf("record of %d bytes in pages of %d", size, s.log.PageSize())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSize, err)
	}
	return nil
}

// attempt tries an operation in memory until it is complete or needs a record
// from the device: then cold is true, and where says which.
func (s *Session) attempt(op *Op, hash uint64, keep int) (where coldAt, cold bool) {
	for {
		outcome, where := s.try(op, hash, keep)
		switch outcome {
		case complete:
			return where, false
		case needsRecord:
			return where, true
		case needsSpace:
			if err := s.log.WaitForSpace(); err != nil {
				op.Err = fmt.Errorf("kv: %w", err)
				return where, false
			}
		case again:
			runtime.Gosched()
		}
	}
}

// try is one attempt under one epoch.
func (s *Session) try(op *Op, hash uint64, keep int) (result outcome, where coldAt) {
	if op.Kind == OpRMW {
		return s.tryModifying(op, hash)
	}
	s.epoch.Enter()
	switch op.Kind {
	case OpRead:
		result, where = s.tryRead(op, hash, keep)
	case OpUpsert:
		result = s.tryUpsert(op, hash)
	default:
		result = s.tryDelete(op, hash)
	}
	s.epoch.Leave()
	return result, where
}

// tryModifying is try for operations that call the user's code: should that
// panic, the deferred Leave keeps it from holding the store up.
func (s *Session) tryModifying(op *Op, hash uint64) (outcome, coldAt) {
	s.epoch.Enter()
	defer s.epoch.Leave()
	return s.tryRMW(op, hash)
}
