package kv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/goroutine"
)

// TestInPlaceUsesAnotherSession uses a record through another session and through the store,
// from within an InPlace, which holds the lock of the record. Each call returns an error, and
// the change of InPlace counts.
func TestInPlaceUsesAnotherSession(t *testing.T) {
	if goroutine.Self() == 0 {
		t.Skip("goroutines are not told apart here")
	}
	for name, o := range map[string]Options{
		"variable": {}, "counted": {CountKeys: true}, "fixed": {KeySize: 8, ValueSize: 24},
	} {
		size := max(o.ValueSize, 8)
		key, value := key8(1), func(n byte) []byte { v := make([]byte, size); v[0] = n; return v }
		o.Device, o.Memory, o.PageSize, o.Records = device.NewMemory(), 1<<16, 1<<12, 1<<10
		st := open(t, o)
		s, other := st.NewSession(), st.NewSession()
		calls := nestedCalls(other, key, value(9))
		delete(calls, "Close")
		delete(calls, "Wait")
		delete(calls, "RMWWord")
		calls["Submit"] = func() error {
			o := Op{Kind: OpUpsert, Key: key, Value: value(9)}
			var done [1]*Op
			if err := errors.Join(other.Submit(&o), other.Wait(context.Background())); err != nil || other.Poll(done[:]) != 1 {
				return fmt.Errorf("nothing to poll: %w", err)
			}
			return o.Err
		}
		calls["Run"] = func() error {
			return other.Run(&Op{
				Kind: OpRMW, Key: key, Modify: func(*Update) Verdict { return Remove },
				InPlace: func(v []byte) ([]byte, bool) { return v, true },
			})
		}
		calls["store's Upsert"] = func() error { return st.Upsert(context.Background(), key, value(9)) }
		calls["store's Read"] = func() error { _, err := st.Read(context.Background(), key, nil); return err }
		calls["store's Scan"] = func() error {
			for _, err := range st.Scan() {
				if err != nil {
					return err
				}
			}
			return nil
		}
		calls["store's Records"] = func() error {
			for _, err := range st.ScanLog(0, 0) {
				if err != nil {
					return err
				}
			}
			return nil
		}
		calls["store's ScanFrom"] = func() error { _, err := st.ScanFrom(0, 10, func(Record) bool { return true }); return err }
		for call, f := range calls {
			if err := s.Upsert(key, value(1)); err != nil {
				t.Fatal(err)
			}
			op := Op{Kind: OpRMW, Key: key, Modify: func(*Update) Verdict {
				t.Errorf("%s, %s: the Modifier was asked", name, call)
				return Keep
			}}
			op.InPlace = func(v []byte) ([]byte, bool) {
				if err := f(); !errors.Is(err, ErrInModifier) {
					t.Errorf("%s, %s: %v, want ErrInModifier", name, call, err)
				}
				v[0] = 7
				return v, true
			}
			ended := make(chan error, 1)
			go func() { ended <- s.Run(&op) }()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%s, %s: %v", name, call, err)
				}
			case <-time.After(testrun.Patience(time.Minute)):
				t.Fatalf("%s: %s within InPlace waits for its own goroutine", name, call)
			}
			if got, err := other.Read(key, nil); err != nil || string(got) != string(value(7)) {
				t.Errorf("%s, %s left %x, %v", name, call, got, err)
			}
		}
		closeAll(t, other, s, st)
	}
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
