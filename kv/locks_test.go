package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// bank has accounts whose sum never changes.
type bank struct {
	st       *Store
	accounts uint64
}

const (
	openingBalance = 1000
	poison         = 1 << 60 // must be visible only within a transfer
)

func newBank(t *testing.T, opts Options, accounts uint64) *bank {
	b := &bank{open(t, opts), accounts}
	for n := range accounts {
		if err := b.st.Upsert(context.Background(), key8(n), key8(openingBalance)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// transfer moves money between two accounts, by a batch or by single operations. Meanwhile one
// account holds poison.
func (b *bank) transfer(s *Session, rng *rand.Rand) (err error) {
	from, to := key8(rng.Uint64N(b.accounts)), key8(rng.Uint64N(b.accounts))
	amount := rng.Uint64N(10)
	return s.Atomically(context.Background(), [][]byte{from, to}, func() error {
		if err := s.RMW(from, add(poison)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.RMW(from, add(^uint64(poison)+1))) }()
		runtime.Gosched() // lets other sessions run in between
		ops := []Op{{Kind: OpRMW, Key: from, Modify: add(-amount)}, {Kind: OpRMW, Key: to, Modify: add(amount)}}
		if amount%2 == 0 {
			return s.Do(context.Background(), ops)
		}
		return errors.Join(s.Run(&ops[0]), s.Run(&ops[1]))
	})
}

// sum adds up all accounts, in one batch.
func (b *bank) sum(s *Session) (sum uint64, err error) {
	ops := make([]Op, b.accounts)
	for i := range ops {
		ops[i] = Op{Kind: OpRead, Key: key8(uint64(i))}
	}
	err = s.Do(context.Background(), ops)
	for _, op := range ops {
		if err == nil {
			sum += binary.LittleEndian.Uint64(op.Value)
		}
	}
	return sum, err
}

func (b *bank) keys() (keys [][]byte) {
	for n := range b.accounts {
		keys = append(keys, key8(n))
	}
	return keys
}

// TestTransfersKeepTheSum transfers money while other sessions sum all accounts under locks,
// or change other keys without locks, the index grows, pages are evicted, and commits are
// made.
func TestTransfersKeepTheSum(t *testing.T) {
	for name, tc := range map[string]struct {
		accounts uint64
		opts     Options
	}{
		"in memory":         {20, Options{KeySize: 8, ValueSize: 8, Memory: 1 << 20}},
		"cold":              {200, Options{KeySize: 8, ValueSize: 8, Memory: 4 << 10, PageSize: 1 << 10, QueueDepth: 8}},
		"variable and cold": {200, Options{Memory: 4 << 10, PageSize: 1 << 10, QueueDepth: 8}},
		"growing":           {200, Options{KeySize: 8, ValueSize: 8, Memory: 64 << 10, PageSize: 1 << 10, indexBits: 2}},
		"all collide": {20, Options{KeySize: 8, ValueSize: 8, Memory: 1 << 20,
			hash: func([]byte) uint64 { return 5 }}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := tc.opts
			opts.Device = device.NewMemory()
			b := newBank(t, opts, tc.accounts)
			transfers, want := testrun.Raced(3000, 600), tc.accounts*openingBalance
			var working, all sync.WaitGroup
			var stop atomic.Bool
			for i := range uint64(2) {
				working.Go(func() {
					s := b.st.NewSession()
					defer closeAll(t, s)
					rng := rand.New(rand.NewPCG(i, 1))
					for n := 0; n < transfers && !t.Failed(); n++ {
						if err := b.transfer(s, rng); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Go(func() { // takes no locks, and fills the log
				s := b.st.NewSession()
				defer closeAll(t, s)
				for n := uint64(0); !stop.Load(); n++ {
					key := key8(n % tc.accounts)
					unpoisoned := func(u *Update) Verdict {
						if balance(u.Old) >= poison/2 {
							t.Error("an RMW within a transfer of others")
						}
						u.New = append(u.New, u.Old...)
						return Put
					}
					ops := []Op{{Kind: OpRMW, Key: key, Modify: unpoisoned}, {Kind: OpRead, Key: key},
						{Kind: OpUpsert, Key: key8(tc.accounts + n%5000), Value: key8(n)}}
					if err := s.Do(context.Background(), ops); err != nil {
						t.Error(err)
						return
					}
					if v, err := s.Read(key, nil); err != nil || balance(v) >= poison/2 || balance(ops[1].Value) >= poison/2 {
						t.Errorf("reads within a transfer of others: %x, %v, %x", v, err, ops[1].Value)
						return
					}
				}
			})
			all.Go(func() {
				s := b.st.NewSession()
				defer closeAll(t, s)
				for n := 0; !stop.Load() && !t.Failed(); n++ {
					lock, sum := s.ReadAtomically, uint64(0)
					if n%3 == 0 {
						lock = s.Atomically
					}
					if err := lock(context.Background(), b.keys(), func() (err error) { sum, err = b.sum(s); return err }); err != nil || sum != want {
						t.Errorf("the sum is %d, want %d: %v", sum, want, err)
					}
					var err error
					switch {
					case n%10 == 5:
						err = b.st.Commit(context.Background())
					case n%10 == 0 && n < 50:
						err = b.st.GrowIndex(context.Background())
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
			working.Wait()
			stop.Store(true)
			all.Wait()
			s := b.st.NewSession()
			if sum, err := b.sum(s); err != nil || sum != want {
				t.Errorf("the sum is %d, want %d: %v", sum, want, err)
			}
			closeAll(t, s, b.st)
		})
	}
}

// TestCommitTakesTransactionsWhole crashes stores between transfers. The sum of the committed
// accounts is right.
func TestCommitTakesTransactionsWhole(t *testing.T) {
	dev := device.NewMemory()
	b := newBank(t, Options{Device: dev, KeySize: 8, ValueSize: 8, Memory: 64 << 10, PageSize: 1 << 10}, 10)
	for round := range 20 {
		if err := b.st.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		var stop atomic.Bool
		var transfers atomic.Int64
		var wg sync.WaitGroup
		for i := range uint64(2) {
			wg.Go(func() {
				s := b.st.NewSession()
				defer closeAll(t, s)
				rng := rand.New(rand.NewPCG(i, uint64(round)))
				for ; !stop.Load(); transfers.Add(1) {
					if err := b.transfer(s, rng); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for n := range int64(5) {
			testrun.Until(t, "enough transfers are made", func() bool { return transfers.Load() >= 10*n+n%3 || t.Failed() })
			if err := b.st.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		stop.Store(true)
		wg.Wait()
		// Close the sessions without another commit, like a crash.
		for _, s := range b.st.pool.idle {
			closeAll(t, s)
		}
		crash(t, b.st)
		dev = dev.Reopen()
		b.st = open(t, Options{Device: dev, KeySize: 8, ValueSize: 8, Memory: 64 << 10, PageSize: 1 << 10})
		s := b.st.NewSession()
		if sum, err := b.sum(s); err != nil || sum != 10*openingBalance {
			t.Fatalf("round %d: %d committed, %v", round, sum, err)
		}
		closeAll(t, s)
	}
	closeAll(t, b.st)
}

// TestLocksDoNotDeadlock locks many overlapping sets of keys, in both modes and every order,
// with operations on the same keys in between.
func TestLocksDoNotDeadlock(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20})
	rounds := testrun.Raced(5000, 1000)
	remove := func(*Update) Verdict { // seals the record first
		runtime.Gosched()
		return Remove
	}
	var wg sync.WaitGroup
	var writing [8]atomic.Int32 // by key: the number of exclusive holders
	for i := range uint64(6) {
		wg.Go(func() {
			s := st.NewSession()
			defer closeAll(t, s)
			rng := rand.New(rand.NewPCG(i, 2))
			for range rounds {
				var keys [][]byte
				numbers := rng.Perm(len(writing))[:1+rng.IntN(5)]
				for _, n := range numbers {
					keys = append(keys, key8(uint64(n)))
				}
				var err error
				switch rng.IntN(5) {
				case 0:
					err = s.RMW(keys[0], add(1))
				case 4:
					err = s.RMW(keys[0], remove)
				case 1:
					err = s.ReadAtomically(context.Background(), keys, func() error {
						for _, n := range numbers {
							if writing[n].Load() != 0 {
								t.Errorf("key %d is locked for reading and for writing", n)
							}
						}
						_, err := s.Read(keys[0], nil)
						if errors.Is(err, ErrNotFound) {
							err = nil
						}
						return err
					})
				default:
					err = s.Atomically(context.Background(), keys, func() error {
						for _, n := range numbers {
							if writing[n].Add(1) != 1 {
								t.Errorf("key %d is locked twice", n)
							}
							defer writing[n].Add(-1)
						}
						return errors.Join(s.RMW(keys[0], remove), s.RMW(keys[len(keys)-1], add(1)))
					})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	closeAll(t, st)
}

func TestLocksRefuseWhatWouldHang(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20})
	s := st.NewSession()
	locked, other := key8(1), key8(2)
	if err := s.Upsert(other, other); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken off")
	err := s.Atomically(context.Background(), [][]byte{locked, locked}, func() error {
		if err := s.Upsert(other, locked); !errors.Is(err, ErrNotLocked) {
			t.Errorf("Upsert of a key that is not locked: %v", err)
		}
		if _, err := s.Read(other, nil); !errors.Is(err, ErrNotLocked) {
			t.Errorf("Read of a key that is not locked: %v", err)
		}
		if err := s.Do(context.Background(), []Op{{Kind: OpUpsert, Key: locked, Value: other}, {Kind: OpDelete, Key: other}}); !errors.Is(err, ErrNotLocked) {
			t.Errorf("a batch with a key that is not locked: %v", err)
		}
		if err := s.Atomically(context.Background(), [][]byte{other}, func() error { return nil }); !errors.Is(err, ErrHoldsLocks) {
			t.Errorf("Atomically within Atomically: %v", err)
		}
		if err := s.Close(); !errors.Is(err, ErrHoldsLocks) {
			t.Errorf("Close within Atomically: %v", err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("Atomically returned %v", err)
	}
	err = s.ReadAtomically(context.Background(), [][]byte{other}, func() error {
		if err := s.Upsert(other, locked); !errors.Is(err, ErrNotLocked) {
			t.Errorf("Upsert of a key that is locked for reading: %v", err)
		}
		v, err := s.Read(other, nil)
		if err == nil && string(v) != string(other) {
			t.Errorf("read %x", v)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = s.Atomically(context.Background(), [][]byte{locked}, func() error { panic("in there") })
	}()
	// Operations submitted within Atomically are completed under the locks.
	op := Op{Kind: OpUpsert, Key: locked, Value: locked}
	if err := s.Atomically(context.Background(), [][]byte{locked}, func() error { return s.Submit(&op) }); err != nil {
		t.Error(err)
	}
	var done [2]*Op
	if n := s.Poll(done[:]); n != 1 || done[0] != &op || op.Err != nil {
		t.Errorf("%d operations polled, err %v", n, op.Err)
	}
	if err := st.Atomically(context.Background(), [][]byte{other}, func(s *Session) error { return s.Delete(other) }); err != nil {
		t.Error(err)
	}
	closeAll(t, s, st)
	if err := s.Atomically(context.Background(), [][]byte{locked}, func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("Atomically of a closed session: %v", err)
	}
}

// TestWaitingForLocksEnds makes commits and checkpoints while a session holds locks and waits
// for them. They end with their contexts.
func TestWaitingForLocksEnds(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20})
	s := st.NewSession()
	key := key8(1)
	err := s.Atomically(context.Background(), [][]byte{key}, func() error {
		waiting := []func(context.Context) error{st.Commit, st.Commit}
		for kind := range manifest.Kinds {
			waiting = append(waiting, func(ctx context.Context) error {
				_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: kind})
				return err
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		ends := make(chan error)
		for _, wait := range waiting {
			go func() { ends <- wait(ctx) }()
		}
		for range waiting {
			if err := testrun.Receive(t, "a wait ends", ends); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("waited in vain: %v", err)
			}
		}
		return s.Upsert(key, key)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := st.Checkpoint(t.Context(), CheckpointOptions{Kind: Snapshot}); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Commit(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a commit whose context has ended: %v", err)
	}
	closeAll(t, s, st)
}

// While two sessions lock a key for reading again and again, so that nearly always one of them has it,
// others that want to change it get their turn.
func TestReadersStarveNothing(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20})
	key := key8(1)
	var stop atomic.Bool
	var reads [2]atomic.Int64
	var readers sync.WaitGroup
	for i := range reads {
		readers.Go(func() {
			s := st.NewSession()
			defer closeAll(t, s)
			for !stop.Load() {
				err := s.ReadAtomically(t.Context(), [][]byte{key}, func() error {
					reads[i].Add(1)
					other := reads[1-i].Load()
					for n := 0; n < 10_000 && reads[1-i].Load() == other; n++ {
						runtime.Gosched() // until the other one has the lock too
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer func() { readers.Wait(); closeAll(t, st) }()
	defer stop.Store(true)
	for name, change := range map[string]func(*Session) error{
		"Atomically": func(s *Session) error {
			return s.Atomically(t.Context(), [][]byte{key}, func() error { return s.Upsert(key, key) })
		},
		"Upsert": func(s *Session) error { return s.Upsert(key, key) },
		"RMW":    func(s *Session) error { return s.RMW(key, add(1)) },
		"Delete": func(s *Session) error { return s.Delete(key) },
		"LockMore": func(s *Session) error {
			return s.Atomically(t.Context(), [][]byte{key8(2)}, func() error {
				return s.LockMore(t.Context(), [][]byte{key})
			})
		},
	} {
		for range 3 {
			before := [2]int64{reads[0].Load(), reads[1].Load()}
			testrun.Until(t, "both read", func() bool { return reads[0].Load() > before[0] && reads[1].Load() > before[1] })
			changed := make(chan error, 1)
			go func() {
				s := st.NewSession()
				defer closeAll(t, s)
				changed <- change(s)
			}()
			if err := testrun.Receive(t, name+" gets its turn", changed); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	testrun.Until(t, "nothing is left in line", func() bool {
		st.locks.linesMu.Lock()
		defer st.locks.linesMu.Unlock()
		return len(st.locks.lines) == 0 || stop.Load()
	})
}

// Those that leave the line because their contexts have ended are in nobody's way.
func TestLeavingTheLine(t *testing.T) {
	holder, other := longLocks(t)
	key := [][]byte{key8(0)}
	st, turn := holder.store, errors.New("it had its turn")
	inLine := func(want int) {
		t.Helper()
		testrun.Until(t, "the line has its length", func() bool {
			st.locks.linesMu.Lock()
			defer st.locks.linesMu.Unlock()
			in := st.locks.lines[stripeOf(other.hash(key[0]))]
			return want == 0 && in == nil || in != nil && in.size == want && len(in.first) == 1
		})
	}
	err := holder.ReadAtomically(t.Context(), key, func() error {
		waits := []func(context.Context) error{
			func(ctx context.Context) error { return st.Upsert(ctx, key[0], key[0]) },
			func(ctx context.Context) error {
				return st.Atomically(ctx, key, func(*Session) error { return turn })
			},
			func(ctx context.Context) error {
				s := st.NewSession()
				defer closeAll(t, s)
				return s.ReadAtomically(ctx, key, func() error { return turn })
			},
		}
		for _, leave := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} { // in this order
			var cancels []context.CancelFunc
			var ends []chan error
			for n, wait := range waits {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				cancels, ends = append(cancels, cancel), append(ends, ended)
				go func() { ended <- wait(ctx) }()
				inLine(n + 1)
			}
			for i, n := range leave {
				want := context.Canceled
				if i == 2 && n == 2 {
					want = turn // the other reader is not in its way
				} else {
					cancels[n]()
				}
				if err := testrun.Receive(t, "a wait ends", ends[n]); !errors.Is(err, want) {
					t.Errorf("number %d of %v ends with %v, want %v", n, leave, err, want)
				}
			}
			inLine(0)
			if err := other.ReadAtomically(t.Context(), key, func() error { return nil }); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestGuardEnds checks that operations get their fast paths back, and that the next locker is
// safe.
func TestGuardEnds(t *testing.T) {
	b := newBank(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20}, 5)
	s := b.st.NewSession()
	var wg sync.WaitGroup
	for i := range uint64(3) {
		wg.Go(func() {
			s := b.st.NewSession()
			defer closeAll(t, s)
			rng := rand.New(rand.NewPCG(i, 3))
			for n := range 2000 {
				if err := b.transfer(s, rng); err != nil {
					t.Error(err)
				}
				if n%7 == 0 {
					b.st.locks.recent.Store(false)
					b.st.unguard() // ends the guard if there is no locker
				}
				if err := s.RMW(key8(rng.Uint64N(5)), add(0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for b.st.locks.guarded.Load() {
		b.st.unguard()
	}
	if sum, err := b.sum(s); err != nil || sum != 5*openingBalance || s.view.guarded {
		t.Errorf("the sum is %d, %v, restricted %v", sum, err, s.view.guarded)
	}
	closeAll(t, s, b.st)
}

func TestLocksDoNotAllocate(t *testing.T) {
	testrun.SkipRaced(t, "the race detector allocates")
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20})
	s := st.NewSession()
	keys := [][]byte{key8(3), key8(1), key8(2)}
	one := add(1)
	if n := testrun.AllocsPerRun(100, func() {
		if err := s.Atomically(context.Background(), keys, func() error { return errors.Join(s.RMW(keys[0], one), s.RMW(keys[1], one)) }); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
	closeAll(t, s, st)
}

// BenchmarkLocks transfers between two of many accounts, and compares operations with and
// without a guard.
func BenchmarkLocks(b *testing.B) {
	st := open(b, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 16 << 20})
	s := st.NewSession()
	keys := [][]byte{key8(1), key8(2)}
	one, buf := add(1), make([]byte, 8)
	if err := s.Upsert(keys[0], keys[0]); err != nil {
		b.Fatal(err)
	}
	b.Run("transfer", func(b *testing.B) {
		for b.Loop() {
			if err := s.Atomically(context.Background(), keys, func() error { return errors.Join(s.RMW(keys[0], one), s.RMW(keys[1], one)) }); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, guarded := range []bool{true, false} {
		b.Run(map[bool]string{true: "read guarded", false: "read"}[guarded], func(b *testing.B) {
			if guarded {
				st.locks.lockers.Add(1)
				st.guard()
				st.locks.lockers.Add(-1)
			}
			for !guarded && st.locks.guarded.Load() {
				st.unguard()
			}
			for b.Loop() {
				if _, err := s.Read(keys[0], buf[:0]); err != nil {
					b.Fatal(err)
				}
				st.locks.recent.Store(guarded)
			}
		})
	}
	closeAll(b, s, st)
}

// balance returns a value's balance without the sign: an account may be overdrawn.
func balance(value []byte) uint64 {
	n := int64(binary.LittleEndian.Uint64(value))
	return uint64(max(n, -n))
}
