package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// longLocks opens a store with two sessions for tests of locks that are held for long.
func longLocks(t *testing.T) (holder, other *Session) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20, Records: 1 << 10})
	for n := range uint64(4) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	holder, other = st.NewSession(), st.NewSession()
	t.Cleanup(func() { closeAll(t, holder, other, st) })
	return holder, other
}

// Operations and lockers that wait for a lock give up once its holder refuses waiters, and others
// go on.
func TestRefuseWaiters(t *testing.T) {
	for _, lock := range []func(*Session, context.Context, [][]byte, func() error) error{(*Session).Atomically, (*Session).ReadAtomically} {
		holder, other := longLocks(t)
		background := context.Background()
		errs := make(chan error)
		err := lock(holder, background, [][]byte{key8(0), key8(1)}, func() error {
			go func() { errs <- other.Upsert(key8(0), key8(5)) }()
			select {
			case err := <-errs:
				t.Errorf("a change did not wait: %v", err)
			case <-time.After(10 * time.Millisecond): // it waits now, or will
			}
			holder.RefuseWaiters()
			if err := testrun.Receive(t, "the change that waits ends", errs); !errors.Is(err, ErrKeyBusy) {
				t.Errorf("a change that waits ends with %v", err)
			}
			if err := holder.LockMore(background, [][]byte{key8(2)}); err != nil {
				t.Error(err)
			}
			go func() {
				errs <- other.Upsert(key8(2), key8(5))
				errs <- other.Atomically(background, [][]byte{key8(1), key8(3)}, func() error { return nil })
				errs <- other.Upsert(key8(3), key8(5))
			}()
			for _, want := range []error{ErrKeyBusy, ErrKeyBusy, nil} {
				if err := testrun.Receive(t, "a change that waits ends", errs); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(4) {
			if err := other.Upsert(key8(n), key8(n)); err != nil {
				t.Errorf("after the end: key %d: %v", n, err)
			}
		}
	}
}

// Of two readers of a key that refuse waiters, one ends: the other one still does.
func TestRefuseWaitersOfTwo(t *testing.T) {
	holder, other := longLocks(t)
	third := holder.store.NewSession()
	defer closeAll(t, third)
	background := context.Background()
	keys := [][]byte{key8(0)}
	err := holder.ReadAtomically(background, keys, func() error {
		holder.RefuseWaiters()
		err := other.ReadAtomically(background, keys, func() error {
			other.RefuseWaiters()
			return nil
		})
		if err != nil {
			return err
		}
		changed := make(chan error, 1)
		go func() { changed <- third.Upsert(key8(0), key8(5)) }()
		if err := testrun.Receive(t, "the change ends", changed); !errors.Is(err, ErrKeyBusy) {
			t.Errorf("a change while a reader refuses waiters: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Upsert(key8(0), key8(5)); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// LockMore adds keys, waits for them no longer than its context, and does not work without locks.
func TestLockMore(t *testing.T) {
	holder, other := longLocks(t)
	background := context.Background()
	if err := holder.LockMore(background, [][]byte{key8(0)}); !errors.Is(err, ErrNotLocked) {
		t.Errorf("outside Atomically: %v", err)
	}
	err := holder.Atomically(background, [][]byte{key8(0)}, func() error {
		if _, err := holder.Read(key8(1), nil); !errors.Is(err, ErrNotLocked) {
			t.Errorf("before: %v", err)
		}
		if err := holder.LockMore(background, [][]byte{key8(1), key8(0), key8(1)}); err != nil {
			return err
		}
		got, err := holder.Read(key8(1), nil)
		if err != nil || binary.LittleEndian.Uint64(got) != 1 {
			t.Errorf("after: %v, %v", got, err)
		}
		locked, done := make(chan struct{}), make(chan error)
		ctx, cancel := context.WithCancel(background)
		go func() {
			done <- other.Atomically(background, [][]byte{key8(2)}, func() error {
				close(locked)
				<-ctx.Done()
				return nil
			})
		}()
		testrun.Receive(t, "the other session has locked its key", locked)
		cancelled, stop := context.WithCancel(background)
		stop()
		if err := holder.LockMore(cancelled, [][]byte{key8(2)}); !errors.Is(err, context.Canceled) {
			t.Errorf("of a key that another session has locked: %v", err)
		}
		cancel()
		if err := testrun.Receive(t, "the other session ends", done); err != nil {
			return err
		}
		return holder.LockMore(background, [][]byte{key8(2)})
	})
	if err != nil {
		t.Fatal(err)
	}
}
