package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/redykv/redykv/device"
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
				readBack(s.Read(key, nil)).Want(t, key8(7), "%s with %s within", outer, call)
			}
		}
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
			err := errors.Join(s.Upsert(key, key8(3)), s.Delete(key), s.Do(context.Background(), []Op{{Kind: OpRead, Key: key}}))
			if err != nil {
				t.Errorf("after a panic in %s: %v", outer, err)
			}
		}
	})
}

// TestModifierClosesItsSession closes the session within a Modifier. Close is refused, or the
// read-modify-write finds its session closed and changes nothing: it is in no epoch, so
// evicting memory does not wait for it.
func TestModifierClosesItsSession(t *testing.T) {
	for outer := range outerCalls(nil, nil, nil) {
		st := open(t, small(device.NewMemory(), 8, 8))
		s := st.NewSession()
		if err := s.Upsert(key8(1), key8(1)); err != nil {
			t.Fatal(err)
		}
		var nested error
		err := outerCalls(s, key8(1), func() { nested = s.Close() })[outer]()
		if (nested != nil || !errors.Is(err, ErrClosed)) && (err != nil || !errors.Is(nested, ErrInModifier)) {
			t.Errorf("%s: %v, with Close within: %v", outer, err, nested)
		}
		s.Poll(make([]*Op, 1))
		closeAll(t, s, st)
	}
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
	// kv: called from within a Modifier of the session
	// <nil> <nil> <nil>
}
