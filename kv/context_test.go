package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// stallable is a device that can be stalled: then its queues complete nothing.
type stallable struct {
	device.Device
	mu      sync.Mutex
	resumed chan struct{} // closed by resume; nil if the device is not stalled
	waits   chan struct{} // closed when a queue waits for resume
}

func (d *stallable) stall() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resumed, d.waits = make(chan struct{}), make(chan struct{})
}

// waiting reports whether a queue waits for resume.
func (d *stallable) waiting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.waits:
		return true
	default:
		return false // also of a device that was not stalled
	}
}

// waited tells that a queue waits.
func (d *stallable) waited() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.waits:
	default:
		close(d.waits)
	}
}

func (d *stallable) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.resumed)
	d.resumed = nil
}

func (d *stallable) stalled() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resumed
}

func (d *stallable) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &stallableQueue{q, d}, err
}

type stallableQueue struct {
	device.Queue
	d *stallable
}

func (q *stallableQueue) Poll(done []device.Completion) int {
	if q.d.stalled() != nil {
		return 0
	}
	return q.Queue.Poll(done)
}

func (q *stallableQueue) Wait(ctx context.Context) error {
	if resumed := q.d.stalled(); resumed != nil {
		q.d.waited()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-resumed:
		}
	}
	return q.Queue.Wait(ctx)
}

const stallKeys = 500

// openStallable opens a store with most keys on the device only. Each key is its own value.
func openStallable(t *testing.T, size int) (*Store, *stallable) {
	t.Helper()
	dev := &stallable{Device: device.NewMemory()}
	st := open(t, small(dev, size, size))
	fillStallable(t, st)
	return st, dev
}

func fillStallable(t *testing.T, st *Store) {
	t.Helper()
	for n := range uint64(stallKeys) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// soon returns a context that ends in a moment.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// unchanged checks that each of the first keys has its original value.
func unchanged(t *testing.T, s *Session) {
	t.Helper()
	for n := range uint64(stallKeys) {
		readBack(s.Read(key8(n), nil)).Want(t, key8(n), "key %d", n)
	}
}

// TestPendingOperationsOfOtherKeys checks that read-modify-writes that wait for the device do not
// make those of other keys wait, and that one of the same key comes after them.
func TestPendingOperationsOfOtherKeys(t *testing.T) {
	dev := &stallable{Device: device.NewMemory()}
	opts := small(dev, 8, 8)
	opts.QueueDepth = DefaultQueueDepth
	st := open(t, opts)
	fillStallable(t, st)
	s := st.NewSession()
	defer closeAll(t, s, st)
	add := func(old uint64, _ bool) (uint64, Verdict) { return old + 1000, Put }
	ops := make([]Op, DefaultQueueDepth)
	for i := range ops {
		ops[i] = Op{Kind: OpRMW, Key: key8(uint64(i)), ModifyWord: add}
	}
	last := &ops[len(ops)-1]
	*last = Op{Kind: OpRead, Key: key8(0)}
	done := make([]*Op, len(ops))
	dev.stall()
	s.SetContext(soon(t)) // whatever waits for the device now, fails
	for i := range ops[:len(ops)-1] {
		if err := s.Submit(&ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	n := s.Poll(done)
	for _, op := range done[:n] {
		if op.Err != nil {
			t.Fatalf("key %x: %v", op.Key, op.Err)
		}
	}
	if n > len(ops)/2 {
		t.Fatalf("%d of %d operations needed no device", n, len(ops))
	}
	dev.resume()
	s.SetContext(t.Context())
	if err := s.Submit(last); err != nil {
		t.Fatal(err)
	}
	for n < len(ops) {
		more := s.Poll(done)
		for _, op := range done[:more] {
			if op.Err != nil {
				t.Errorf("key %x: %v", op.Key, op.Err)
			}
		}
		if n += more; more == 0 {
			if err := s.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := binary.LittleEndian.Uint64(key8(0)) + 1000; binary.LittleEndian.Uint64(last.Value) != want {
		t.Errorf("a read after a read-modify-write of its key: %x, want %x", last.Value, want)
	}
}

// TestContextEndsWaitingForTheDevice ends the contexts of calls that wait for records. The
// calls change nothing, even when the records arrive, and the session remains usable.
func TestContextEndsWaitingForTheDevice(t *testing.T) {
	for name, size := range map[string]int{"words": 8, "variable": 0} {
		t.Run(name, func(t *testing.T) {
			st, dev := openStallable(t, size)
			s, err := st.NewNamedSession("waiting")
			if err != nil {
				t.Fatal(err)
			}
			clobber := func(u *Update) Verdict { u.New = append(u.New, key8(999)...); return Put }
			cold, hot := key8(1), key8(stallKeys-1)
			batch := func(do func(context.Context, []Op) error) func(context.Context) error {
				return func(ctx context.Context) error {
					ops := make([]Op, 3*laneSize) // more than QueueDepth
					for i := range ops {
						ops[i] = Op{Kind: OpKind(i) % opNewest, Key: key8(uint64(i)), Value: key8(uint64(i)), Modify: clobber}
						if ops[i].Kind != OpRead {
							ops[i].Kind = OpRMW
						}
					}
					ops[7] = Op{Kind: OpRead, Key: hot}
					err := do(ctx, ops)
					for i := range ops {
						if i != 7 && !errors.Is(ops[i].Err, context.DeadlineExceeded) {
							t.Errorf("operation %d: %v", i, ops[i].Err)
						}
					}
					if ops[7].Err != nil || !bytes.Equal(ops[7].Value, hot) {
						t.Errorf("in memory: %x, %v", ops[7].Value, ops[7].Err)
					}
					return err
				}
			}
			plain := func(call func() error) func(context.Context) error {
				return func(ctx context.Context) error {
					s.SetContext(ctx)
					defer s.SetContext(context.Background())
					return call()
				}
			}
			for name, call := range map[string]func(context.Context) error{
				"Read":    plain(func() error { _, err := s.Read(cold, nil); return err }),
				"RMW":     plain(func() error { return s.RMW(cold, clobber) }),
				"Insert":  plain(func() error { return s.Insert(cold, key8(999)) }),
				"Run":     plain(func() error { return s.Run(&Op{Kind: OpRMW, Key: cold, Modify: clobber}) }),
				"Do":      batch(s.Do),
				"DoWhole": batch(s.DoWhole),
				"store's": func(ctx context.Context) error { return st.RMW(ctx, cold, clobber) },
				"Atomically": func(ctx context.Context) error {
					return s.Atomically(ctx, [][]byte{cold}, func() error { return s.RMW(cold, clobber) })
				},
			} {
				dev.stall()
				err := call(soon(t))
				dev.resume()
				if !errors.Is(err, context.DeadlineExceeded) || s.Err() != nil {
					t.Errorf("%s: %v; the session: %v", name, err, s.Err())
				}
				unchanged(t, s)
			}
			if err := errors.Join(s.RMW(cold, clobber), st.Commit(context.Background())); err != nil {
				t.Error(err)
			}
			if p, _ := st.CommitPoint("waiting"); p.Until != s.Serial() || len(p.Excluding) > 0 {
				t.Errorf("committed to %d of %d but for %v", p.Until, s.Serial(), p.Excluding)
			}
			closeAll(t, s, st)
		})
	}
}

// TestContextEndsBeforeTheReadsComplete closes a session, and the store, while the reads of
// canceled operations are pending.
func TestContextEndsBeforeTheReadsComplete(t *testing.T) {
	st, dev := openStallable(t, 8)
	s := st.NewSession()
	dev.stall()
	s.SetContext(soon(t))
	for n := range uint64(4 * 16) { // several times QueueDepth
		if _, err := s.Read(key8(n), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	// Operations in memory do not wait.
	readBack(s.Read(key8(stallKeys-1), nil)).Want(t, key8(stallKeys-1), "read")
	time.AfterFunc(5*time.Millisecond, dev.resume)
	closeAll(t, s, st)
}

// TestContextEndsWaitingForSpace writes until the log is full.
func TestContextEndsWaitingForSpace(t *testing.T) {
	st, dev := openStallable(t, 8)
	s := st.NewSession()
	dev.stall()
	s.SetContext(soon(t))
	n := uint64(stallKeys)
	var err error
	for ; err == nil; n++ {
		err = s.Upsert(key8(n), key8(n))
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	before := st.Metrics().Log.MemoryBudget
	bounded, cancel := context.WithTimeout(t.Context(), testrun.Patience(testrun.Bound))
	defer cancel()
	if err := st.SetMemory(bounded, 4<<10); err != nil { // the log is at its minimum
		t.Error(err)
	}
	dev.resume()
	s.SetContext(context.Background())
	if _, err := s.Read(key8(n-1), nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("the key for which there was no space: %v", err)
	}
	unchanged(t, s)
	if now := st.Metrics().Log.MemoryBudget; now != before {
		t.Errorf("%d bytes, were %d", now, before)
	}
	closeAll(t, s, st)
}

// An operation of Submit has the context of SetContext, also if it is executed by a call with another one.
func TestContextOfSubmit(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func(s *Session){
		"Do":         func(s *Session) { _ = s.Do(ended, []Op{{Kind: OpUpsert, Key: key8(2), Value: key8(2)}}) },
		"Atomically": func(s *Session) { _ = s.Atomically(ended, [][]byte{key8(2)}, func() error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			st, dev := openStallable(t, 8)
			s := st.NewSession()
			dev.stall()
			s.SetContext(ended)
			var err error
			for n := uint64(stallKeys); err == nil; n++ { // until the log is full
				err = s.Upsert(key8(n), key8(n))
			}
			s.SetContext(asked{context.Background(), sync.OnceFunc(dev.resume)})
			op := Op{Kind: OpUpsert, Key: key8(1), Value: key8(1)}
			if err := s.Submit(&op); err != nil {
				t.Fatal(err)
			}
			call(s)
			if n := s.Poll(make([]*Op, 1)); n != 1 || op.Err != nil {
				t.Errorf("%d operations, %v", n, op.Err)
			}
			if dev.stalled() != nil {
				dev.resume()
			}
			closeAll(t, s, st)
		})
	}
}

// asked is a context that tells when something begins to wait with it.
type asked struct {
	context.Context
	waits func()
}

func (c asked) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// TestContextEndsSetMemory shrinks a log that cannot be written.
func TestContextEndsSetMemory(t *testing.T) {
	dev := &stallable{Device: device.NewMemory()}
	opts := small(dev, 8, 8)
	opts.Memory, opts.MaxMemory = 16<<10, 16<<10
	st := open(t, opts)
	s := st.NewSession()
	dev.stall()
	for n := range uint64(stallKeys) { // 12 KB
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	before := st.Metrics().Log.MemoryBudget
	err := st.SetMemory(soon(t), 4<<10)
	if now := st.Metrics().Log.MemoryBudget; !errors.Is(err, context.DeadlineExceeded) || now != before {
		t.Errorf("%v; %d bytes, were %d", err, now, before)
	}
	dev.resume()
	unchanged(t, s)
	if err := st.SetMemory(context.Background(), 4<<10); err != nil {
		t.Error(err)
	}
	unchanged(t, s)
	closeAll(t, s, st)
}

// TestContextEndsWaitingForLocks ends the contexts of calls that wait for the holder of a
// key's lock.
func TestContextEndsWaitingForLocks(t *testing.T) {
	st, _ := openStallable(t, 8)
	holder, s := st.NewSession(), st.NewSession()
	held, end := make(chan struct{}), make(chan struct{})
	var holding sync.WaitGroup
	key := key8(3)
	holding.Go(func() {
		err := holder.Atomically(context.Background(), [][]byte{key}, func() error {
			close(held)
			<-end
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	testrun.Receive(t, "the key is locked", held)
	for name, call := range map[string]func(context.Context) error{
		"Upsert": func(ctx context.Context) error {
			s.SetContext(ctx)
			defer s.SetContext(context.Background())
			return s.Upsert(key, key8(999))
		},
		"Do": func(ctx context.Context) error {
			return s.Do(ctx, []Op{{Kind: OpUpsert, Key: key, Value: key8(999)}})
		},
		"Atomically": func(ctx context.Context) error {
			return s.Atomically(ctx, [][]byte{key8(1), key, key8(2)}, func() error { return errors.New("it was called") })
		},
		"ReadAtomically": func(ctx context.Context) error {
			return s.ReadAtomically(ctx, [][]byte{key}, func() error { return errors.New("it was called") })
		},
		"store's Upsert": func(ctx context.Context) error { return st.Upsert(ctx, key, key8(999)) },
		"Clear":          st.Clear,
		"Commit":         st.Commit,
	} {
		if err := call(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(end)
	holding.Wait()
	unchanged(t, s)
	closeAll(t, s, holder, st)
}

// TestContextEndsWaitingForASession makes more calls of the store than it lends sessions to.
func TestContextEndsWaitingForASession(t *testing.T) {
	st, dev := openStallable(t, 8)
	dev.stall()
	var all sync.WaitGroup
	for range maxLent {
		all.Go(func() {
			if _, err := st.Read(context.Background(), key8(1), nil); err != nil {
				t.Error(err)
			}
		})
	}
	lent := func() (n, waiting int) {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.pool.lent, len(st.pool.waiting)
	}
	testrun.Until(t, "all sessions are lent", func() bool { n, _ := lent(); return n == maxLent })
	if _, err := st.Read(soon(t), key8(1), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, waiting := lent(); waiting != 0 {
		t.Errorf("%d calls wait", waiting)
	}
	dev.resume()
	all.Wait()
	if _, err := st.Read(context.Background(), key8(1), nil); err != nil {
		t.Error(err)
	}
	if n, _ := lent(); n != 0 {
		t.Error(fmt.Sprint(n, " sessions are lent"))
	}
	closeAll(t, st)
}

// TestCommitBesideALongTransaction: while a commit waits for a transaction that takes long, and after its context
// has ended, whole batches and other transactions go on.
func TestCommitBesideALongTransaction(t *testing.T) {
	for _, gaveUp := range []bool{false, true} {
		t.Run(fmt.Sprintf("gave up=%v", gaveUp), func(t *testing.T) {
			st, _ := openStallable(t, 8)
			holder, s := st.NewSession(), st.NewSession()
			held, end := make(chan struct{}), make(chan struct{})
			var others [][]byte // whose locks are not that of key 3
			for i := uint64(4); len(others) < 2; i++ {
				if stripeOf(s.hash(key8(i))) != stripeOf(s.hash(key8(3))) {
					others = append(others, key8(i))
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(testrun.Bound))
			defer cancel()
			var all sync.WaitGroup
			all.Go(func() {
				if err := holder.Atomically(context.Background(), [][]byte{key8(3)}, func() error {
					close(held)
					<-end
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			testrun.Receive(t, "the key is locked", held)
			if gaveUp {
				if err := st.Commit(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Commit: %v", err)
				}
			} else {
				all.Go(func() {
					if err := st.Commit(context.Background()); err != nil {
						t.Error(err)
					}
				})
				testrun.Until(t, "the commit waits", st.gate.Waiting)
			}
			for range 10 {
				if err := s.DoWhole(ctx, []Op{
					{Kind: OpUpsert, Key: others[0], Value: key8(1)}, {Kind: OpUpsert, Key: others[1], Value: key8(2)},
				}); err != nil {
					t.Errorf("a whole batch: %v", err)
				}
				if err := s.Atomically(ctx, others, func() error { return s.Upsert(others[0], key8(4)) }); err != nil {
					t.Errorf("a transaction: %v", err)
				}
			}
			close(end)
			all.Wait()
			closeAll(t, s, holder, st)
		})
	}
}

// TestNoReadsPendingAfterTheirCalls: reads of calls whose context has ended are polled when the device answers,
// though their sessions are idle. Meanwhile the store has sessions for other calls, and Close waits.
func TestNoReadsPendingAfterTheirCalls(t *testing.T) {
	counted := &pendingReads{Device: device.NewMemory()}
	dev := &stallable{Device: counted}
	st := open(t, small(dev, 8, 8))
	fillStallable(t, st)
	dev.stall()
	for n := range uint64(2 * maxLent) {
		if _, err := st.Read(soon(t), key8(n%4), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a read from a device that does not answer: %v", err)
		}
	}
	if err := st.Upsert(context.Background(), key8(stallKeys), key8(1)); err != nil {
		t.Error(err)
	}
	if counted.pending.Load() == 0 {
		t.Fatal("no reads are pending")
	}
	dev.resume()
	testrun.Until(t, "the reads are polled", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.pool.settling == 0
	})
	if n := counted.pending.Load(); n != 0 {
		t.Errorf("%d reads stay pending", n)
	}
	closeAll(t, st)
}

// TestReadsAheadEndWithTheirContext: a scan and a compaction end with their contexts while they wait for
// reads ahead, whose buffers are not used before these have ended.
func TestReadsAheadEndWithTheirContext(t *testing.T) {
	compact := func(method CompactMethod) func(context.Context, *Store) error {
		return func(ctx context.Context, st *Store) error {
			_, err := st.Compact(ctx, CompactOptions{Method: method})
			return err
		}
	}
	for name, walk := range map[string]func(context.Context, *Store) error{
		"scan": func(ctx context.Context, st *Store) (err error) {
			for _, err = range st.ScanContext(ctx) {
			}
			return err
		},
		"compaction by lookup": compact(CompactByLookup),
		"compaction by scan":   compact(CompactByScan),
	} {
		t.Run(name, func(t *testing.T) {
			st, dev := openStallable(t, 8)
			if err := st.Commit(t.Context()); err != nil { // no write is pending
				t.Fatal(err)
			}
			dev.stall()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- walk(ctx, st) }()
			testrun.Receive(t, "a read ahead", dev.waits)
			cancel()
			if err := testrun.Receive(t, "the end of "+name, ended); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want that it was canceled", err)
			}
			st.mu.Lock()
			if n := st.pool.settling; n != 1 {
				t.Errorf("%d sessions wait for their reads, want that of the walk", n)
			}
			st.mu.Unlock()
			dev.resume()
			if n := liveKeys(t, st); n != stallKeys {
				t.Errorf("%d keys, want %d", n, stallKeys)
			}
			closeAll(t, st)
		})
	}
}

// TestSweepEndsWithItsContext: a scan that looks for what a compaction has moved meanwhile ends with its
// context, while the device stands still.
func TestSweepEndsWithItsContext(t *testing.T) {
	st, dev := openStallable(t, 8)
	if err := st.Commit(t.Context()); err != nil { // no write is pending
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		end, begun, sweeps := st.log.Tail(), false, false
		for r, err := range st.ScanContext(ctx) {
			switch {
			case err != nil:
				ended <- err
				return
			case !begun:
				begun = true
				if _, err := st.Compact(t.Context(), CompactOptions{Method: CompactByScan}); err != nil {
					t.Error(err)
				}
			case !sweeps && r.Address >= end:
				sweeps = true
				dev.stall()
			}
		}
		ended <- nil
	}()
	testrun.Until(t, "a read of the sweep waits", dev.waiting)
	cancel()
	if err := testrun.Receive(t, "the end of the scan", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was canceled", err)
	}
	dev.resume()
	if n := liveKeys(t, st); n != stallKeys {
		t.Errorf("%d keys, want %d", n, stallKeys)
	}
	closeAll(t, st)
}
