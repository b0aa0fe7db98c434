package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/goroutine"
)

// nestedCalls returns the calls of a session that write the key, or wait.
func nestedCalls(s *Session, key, value []byte) map[string]func() error {
	put := func(u *Update) Verdict { u.New = append(u.New, value...); return Put }
	return map[string]func() error{
		"Upsert": func() error { return s.Upsert(key, value) },
		"RMW":    func() error { return s.RMW(key, put) },
		"RMWWord": func() error {
			return s.RMWWord(key, func(uint64, bool) (uint64, Verdict) { return binary.LittleEndian.Uint64(value), Put })
		},
		"Insert": func() error { return s.Insert(key, value) },
		"Delete": func() error { return s.Delete(key) },
		"Run":    func() error { return s.Run(&Op{Kind: OpUpsert, Key: key, Value: value}) },
		"Do":     func() error { return s.Do(context.Background(), []Op{{Kind: OpUpsert, Key: key, Value: value}}) },
		"DoWhole": func() error {
			return s.DoWhole(context.Background(), []Op{{Kind: OpUpsert, Key: key, Value: value}, {Kind: OpRead, Key: key}})
		},
		"Submit": func() error { return s.Submit(&Op{Kind: OpUpsert, Key: key, Value: value}) },
		"Wait":   func() error { return s.Wait(context.Background()) },
		"Atomically": func() error {
			return s.Atomically(context.Background(), [][]byte{key}, func() error { return s.Upsert(key, value) })
		},
		"Read":  func() error { _, err := s.Read(key, nil); return err },
		"Close": s.Close,
	}
}

// outerCalls returns the ways to call a Modifier. The Modifiers call within.
func outerCalls(s *Session, key []byte, within func()) map[string]func() error {
	modify := func(u *Update) Verdict {
		within()
		u.New = append(u.New, key8(7)...)
		return Put
	}
	op := func() Op { return Op{Kind: OpRMW, Key: key, Modify: modify} }
	return map[string]func() error{
		"RMW": func() error { return s.RMW(key, modify) },
		"RMWWord": func() error {
			return s.RMWWord(key, func(uint64, bool) (uint64, Verdict) { within(); return 7, Put })
		},
		"InPlace": func() error {
			o := op()
			o.InPlace = func(value []byte) ([]byte, bool) {
				within()
				return value, copy(value, key8(7)) == 8
			}
			return s.Run(&o)
		},
		"batch": func() error { o := op(); return s.Do(context.Background(), []Op{o, {Kind: OpRead, Key: key}, o}) },
		"stream": func() error {
			o := op()
			if err := s.Submit(&o); err != nil {
				return err
			}
			if err := s.Wait(context.Background()); err != nil {
				return err
			}
			if s.Poll(make([]*Op, 1)) != 1 {
				return errors.New("nothing to poll")
			}
			return o.Err
		},
	}
}

// nestedStores runs a test on stores of each kind, with a record that is mutable, one that is
// on the device, and none.
func nestedStores(t *testing.T, test func(t *testing.T, st *Store, s *Session, key []byte)) {
	for name, size := range map[string]int{"words": 8, "variable": 0} {
		for n, where := range []string{"mutable", "cold", "absent"} {
			t.Run(name+"/"+where, func(t *testing.T) {
				st := open(t, small(device.NewMemory(), size, size))
				s := st.NewSession()
				put := func(n uint64) {
					if err := s.Upsert(key8(n), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				put(1)
				for n := range uint64(1000) {
					put(n + 1000)
				}
				put(0)
				test(t, st, s, key8(uint64(n)))
				closeAll(t, s, st)
			})
		}
	}
}

// TestModifierUsesItsSession makes each call of the session within each kind of
// read-modify-write of it. The Modifier's last result counts, whatever the call did.
func TestModifierUsesItsSession(t *testing.T) {
	nestedStores(t, func(t *testing.T, st *Store, s *Session, key []byte) {
		for outer := range outerCalls(s, key, nil) {
			for call, f := range nestedCalls(s, key, key8(9)) {
				if s.layout.WordValues() && (call == "Close" || call == "Delete") {
					continue // outside of any epoch they are executed, as by another goroutine
				}
				calls, refused := 0, 0
				err := outerCalls(s, key, func() {
					calls++
					if err := f(); calls > 10 || err != nil && !errors.Is(err, ErrInModifier) && !errors.Is(err, ErrExists) {
						t.Errorf("%s within %s, call %d: %v", call, outer, calls, err)
					} else if errors.Is(err, ErrInModifier) {
						refused++
					}
				})[outer]()
				if err != nil || calls == 0 {
					t.Errorf("%s with %s within: %v, called %d times", outer, call, err, calls)
				}
				// A call from assembly, outside of any epoch, may succeed if it does not change
				// the record.
				if harmless := call == "Read" || call == "Wait" || call == "Insert" || call == "Submit"; refused == 0 && !harmless {
					t.Errorf("%s within %s was refused never in %d calls", call, outer, calls)
				}
				if err := s.completeAll(context.Background()); err != nil {
					t.Fatal(err)
				}
				s.Poll(make([]*Op, 8))
				if call == "Submit" {
					continue // takes effect before the read-modify-write, or after it
				}
				if got, err := s.Read(key, nil); err != nil || string(got) != string(key8(7)) {
					t.Fatalf("%s with %s within left %x, %v", outer, call, got, err)
				}
			}
		}
	})
}

// TestModifierUsesAnotherSession writes the key of a Modifier through another session and
// through the store, from within the Modifier. The operation ends with an error.
func TestModifierUsesAnotherSession(t *testing.T) {
	if goroutine.Self() == 0 {
		t.Skip("goroutines are not told apart here")
	}
	nestedStores(t, func(t *testing.T, st *Store, s *Session, key []byte) {
		other := st.NewSession()
		for n := range uint64(20) {
			if err := other.Upsert(key8(n+100), key8(n)); err != nil {
				t.Fatal(err)
			}
		}
		n := uint64(0) // the written value differs from the current one
		fresh := func() []byte { n++; return key8(n << 8) }
		put := func(u *Update) Verdict { u.New = append(u.New, fresh()...); return Put }
		calls := map[string]func() error{
			"store's Upsert":   func() error { return st.Upsert(context.Background(), key, fresh()) },
			"store's RMW":      func() error { return st.RMW(context.Background(), key, put) },
			"session's Upsert": func() error { return other.Upsert(key, fresh()) },
			"session's batch":  func() error { return other.Do(context.Background(), []Op{{Kind: OpUpsert, Key: key, Value: fresh()}}) },
			"session's stream": func() error {
				if err := other.Submit(&Op{Kind: OpUpsert, Key: key, Value: fresh()}); err != nil {
					return err
				}
				var done [1]*Op
				if err := other.Wait(context.Background()); err != nil || other.Poll(done[:]) != 1 {
					return fmt.Errorf("nothing to poll: %w", err)
				}
				return done[0].Err
			},
		}
		for outer := range outerCalls(s, key, nil) {
			if outer == "InPlace" {
				continue // holds the record's lock: see InPlace
			}
			for call, f := range calls {
				refused := 0
				err := outerCalls(s, key, func() {
					if err := f(); errors.Is(err, ErrInModifier) {
						refused++
					} else if err != nil {
						t.Errorf("%s within %s: %v", call, outer, err)
					}
				})[outer]()
				if err != nil || refused == 0 {
					t.Errorf("%s with %s within: %v, refused %d times", outer, call, err, refused)
				}
			}
		}
		if n := st.suspects.Load(); n != 0 {
			t.Errorf("%d suspicions are left", n)
		}
		closeAll(t, other)
	})
}

// TestModifierWaitsForItself makes calls within a Modifier that wait until all sessions have
// left their epochs.
func TestModifierWaitsForItself(t *testing.T) {
	if goroutine.Self() == 0 {
		t.Skip("goroutines are not told apart here")
	}
	nestedStores(t, func(t *testing.T, st *Store, s *Session, _ []byte) {
		other := st.NewSession()
		calls := waitingCalls(st, other, key8(5))
		calls["Scan"] = func() error { return scanError(st.Scan()) }
		calls["ScanLog"] = func() error { return scanError(st.ScanLog(0, 0)) }
		if s.layout.WordValues() { // the record is sealed, which waits for the sessions' epochs
			calls["Remove"] = func() error {
				if err := other.Upsert(key8(5), key8(5)); err != nil {
					return err
				}
				return other.RMW(key8(5), func(*Update) Verdict { return Remove })
			}
		}
		for call, f := range calls {
			asked := false
			o := Op{Kind: OpRMW, Key: []byte("a new ke"), Modify: func(*Update) Verdict {
				asked = true
				if err := f(); !errors.Is(err, ErrInModifier) {
					t.Errorf("%s: %v", call, err)
				}
				return Keep
			}}
			if err := s.Run(&o); err != nil || !asked {
				t.Errorf("%s: %v", call, err)
			}
		}
		// All of memory is written while the session is in its epoch.
		var err error
		// Most records of the keys from 1000 on are on the device.
		put := func(u *Update) Verdict { u.New = append(u.New, key8(1<<40)...); return Put }
		for call, write := range map[string]func(n uint64) error{
			"Upsert": func(n uint64) error { return other.Upsert(key8(n), key8(n)) },
			"RMW":    func(n uint64) error { return other.RMW(key8(1000+n%1000), put) },
			"batch": func(n uint64) error {
				return other.Do(context.Background(), []Op{{Kind: OpRMW, Key: key8(1000 + n%1000), Modify: put}})
			},
		} {
			err = nil
			if e := s.RMW([]byte("a new ke"), func(*Update) Verdict {
				for n := uint64(0); n < 10000 && err == nil; n++ {
					err = write(n)
				}
				return Keep
			}); e != nil || !errors.Is(err, ErrInModifier) {
				t.Errorf("writing more than memory holds by %s: %v, %v", call, e, err)
			}
		}
		closeAll(t, other)
	})
}

// scanError returns the first error of an iteration.
func scanError(records iter.Seq2[Record, error]) error {
	for _, err := range records {
		if err != nil {
			return err
		}
	}
	return nil
}

// waitingCalls are calls of the store, and of a session, that wait for all sessions.
func waitingCalls(st *Store, s *Session, key []byte) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"Commit":           func() error { return st.Commit(ctx) },
		"Checkpoint":       func() error { _, err := st.Checkpoint(ctx, CheckpointOptions{Kind: Snapshot}); return err },
		"RemoveCheckpoint": func() error { return st.RemoveCheckpoint(context.Background(), "none") },
		"Compact":          func() error { _, err := st.Compact(ctx, CompactOptions{}); return err },
		"Clear":            func() error { return st.Clear(ctx) },
		"GrowIndex":        func() error { return st.GrowIndex(ctx) },
		"SetMemory":        func() error { return st.SetMemory(ctx, 1<<20) },
		"Close":            st.Close,
		"Atomically":       func() error { return s.Atomically(context.Background(), [][]byte{key}, func() error { return nil }) },
	}
}

// TestModifiersUseTheStoreAtOnce runs as many Modifiers as the store lends sessions. All of
// them call the store at the same time, and none waits for a session of the others.
func TestModifiersUseTheStoreAtOnce(t *testing.T) {
	if goroutine.Self() == 0 {
		t.Skip("goroutines are not told apart here")
	}
	st := open(t, small(device.NewMemory(), 8, 8))
	if err := st.Upsert(context.Background(), key8(0), key8(7)); err != nil {
		t.Fatal(err)
	}
	var all, begun sync.WaitGroup
	begun.Add(maxLent)
	for n := range uint64(maxLent) {
		all.Go(func() {
			var once sync.Once
			err := st.RMW(context.Background(), key8(n+1), func(u *Update) Verdict {
				once.Do(func() {
					begun.Done()
					begun.Wait()
					if got, err := st.Read(context.Background(), key8(0), nil); err != nil || string(got) != string(key8(7)) {
						t.Errorf("read within Modifier %d: %x, %v", n, got, err)
					}
				})
				u.New = append(u.New, key8(n)...)
				return Put
			})
			if err != nil {
				t.Errorf("RMW %d: %v", n, err)
			}
		})
	}
	all.Wait()
	closeAll(t, st)
}

// TestAtomicallyWaitsForItself makes calls within Atomically that wait for its end.
func TestAtomicallyWaitsForItself(t *testing.T) {
	if goroutine.Self() == 0 {
		t.Skip("goroutines are not told apart here")
	}
	nestedStores(t, func(t *testing.T, st *Store, s *Session, key []byte) {
		other := st.NewSession()
		calls := waitingCalls(st, other, key)
		for name, f := range nestedCalls(other, key, key8(9)) {
			if name != "Wait" && name != "Close" && name != "Submit" {
				calls["other's "+name] = f
			}
		}
		calls["store's Upsert"] = func() error { return st.Upsert(context.Background(), key, key) }
		calls["same session's Atomically"] = func() error { return s.Atomically(context.Background(), [][]byte{key}, func() error { return nil }) }
		for call, f := range calls {
			err := s.Atomically(context.Background(), [][]byte{key}, func() error {
				if err := s.Upsert(key, key8(1)); err != nil {
					return err
				}
				return f()
			})
			if !errors.Is(err, ErrHoldsLocks) {
				t.Errorf("%s: %v", call, err)
			}
			if got, err := other.Read(key, nil); err != nil || string(got) != string(key8(1)) {
				t.Errorf("after %s: %x, %v", call, got, err)
			}
		}
		closeAll(t, other)
	})
}

// TestPanicLeavesTheSessionOpen panics in the Modifier of each kind of call. The session
// remains usable.
func TestPanicLeavesTheSessionOpen(t *testing.T) {
	nestedStores(t, func(t *testing.T, st *Store, s *Session, key []byte) {
		for outer := range outerCalls(s, key, nil) {
			if !panicking(func() { _ = outerCalls(s, key, func() { panic("within") })[outer]() }) {
				t.Errorf("%s: no panic", outer)
			}
			pollAll(s)
			err := errors.Join(s.Upsert(key, key8(3)), s.Delete(key), s.Do(context.Background(), []Op{{Kind: OpRead, Key: key}}), st.inModifier())
			if err != nil {
				t.Errorf("after a panic in %s: %v", outer, err)
			}
		}
	})
}

func ExampleSession_RMW_nested() {
	st, err := Open(Options{Device: device.NewMemory()})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := st.NewSession()
	err = s.RMW([]byte("key"), func(*Update) Verdict {
		fmt.Println(s.Upsert([]byte("key"), []byte("value")))
		return Keep
	})
	fmt.Println(err, s.Close(), st.Close())
	// Output:
	// kv: called from within a Modifier of the same store
	// <nil> <nil> <nil>
}
