package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// directLayouts are the key and value sizes of stores whose plain calls go directly to a
// record in Go.
var directLayouts = map[string][2]int{"variable": {}, "wide values": {8, 40}, "wide keys": {16, 8}}

// ready returns a session whose next plain call may go directly to its record.
func ready(t *testing.T, st *Store) *Session {
	t.Helper()
	s := st.NewSession()
	if _, err := s.Read(directKey(st, 1<<40), nil); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	if s.view.direct == 0 {
		t.Fatal("plain calls may not go directly to a record")
	}
	return s
}

// directKey returns key number n of a store. Its length varies if the store allows it.
func directKey(st *Store, n uint64) []byte {
	if size := st.opts.KeySize; size != 0 {
		return append(key8(n), make([]byte, size-8)...)
	}
	return append(key8(n), make([]byte, n%9)...)
}

func directValue(st *Store, n uint64) []byte {
	size := st.opts.ValueSize
	if size == 0 {
		size = 8 + int(n%50)
	}
	return bytes.Repeat([]byte{byte(n)}, size)
}

// TestDirectCallsFindRecords makes plain calls with keys that are in memory, deleted,
// expiring, on the device, or not stored. Calls that go the general way fail.
func TestDirectCallsFindRecords(t *testing.T) {
	for name, sizes := range directLayouts {
		for _, collide := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/collide=%v", name, collide), func(t *testing.T) {
				const keys = 3000
				opts := Options{Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1], Memory: 64 << 10, Records: keys}
				if collide { // in bucket and tag
					opts.hash = func(key []byte) uint64 { return uint64(key[0] % 64) }
				}
				st := open(t, opts)
				s := st.NewSession()
				plain := putUnlike(t, s, keys,
					func(n uint64) []byte { return directKey(st, n) },
					func(n uint64) []byte { return directValue(st, n) })
				other := errors.New("not direct")
				s.unusable = other
				reads, writes, edits := 0, 0, 0
				for n := range uint64(keys + 100) {
					key, value := directKey(st, n), directValue(st, n)
					_, e := s.view.index.Find(st.hash(key))
					_, _, _, found := s.lookup(key, e.Address(), s.view.head)
					s.enter() // the current epoch
					s.leave()
					s.view.direct = s.view.epoch
					got, err := s.Read(key, []byte("before"))
					switch {
					case err == nil && (!found || !plain[n] || string(got) != "before"+string(value)):
						t.Errorf("key %d reads as %x", n, got)
					case err != nil && !errors.Is(err, other):
						t.Errorf("key %d: %x, %v", n, got, err)
					case err == nil:
						reads++
					}
					if err := s.Upsert(key, value); err == nil && !found || err != nil && !errors.Is(err, other) {
						t.Errorf("key %d is stored: %v", n, err)
					} else if err == nil {
						writes++
					}
					op := Op{Kind: OpRMW, Key: key, InPlace: func(v []byte) ([]byte, bool) {
						if !bytes.Equal(v, value) {
							t.Errorf("key %d is edited: %x", n, v)
						}
						return v, true
					}, Modify: func(*Update) Verdict { return Keep }}
					if err := s.Run(&op); err == nil && !found || err != nil && !errors.Is(err, other) {
						t.Errorf("key %d is modified: %v", n, err)
					} else if err == nil {
						edits++
					}
				}
				s.unusable = nil
				most := 0
				if !collide {
					most = 100
				}
				if reads <= most || writes <= most || edits <= most && sizes[1] != 8 {
					t.Errorf("direct were %d reads, %d upserts and %d edits", reads, writes, edits)
				}
				closeAll(t, s, st)
			})
		}
	}
}

// TestDirectCallsSeeMarkersMove changes a record by plain calls after a commit has made it
// read-only.
func TestDirectCallsSeeMarkersMove(t *testing.T) {
	for name, sizes := range directLayouts {
		t.Run(name, func(t *testing.T) {
			opts := small(device.NewMemory(), sizes[0], sizes[1])
			opts.Memory = 16 << 10
			st := open(t, opts)
			s, filler := ready(t, st), st.NewSession()
			for round := range uint64(4) {
				key := directKey(st, round)
				if err := s.Upsert(key, directValue(st, 1)); err != nil {
					t.Fatal(err)
				}
				if err := st.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if round >= 2 { // the session sees the new marker before it writes
					if _, err := s.Read(directKey(st, 1<<41), nil); !errors.Is(err, ErrNotFound) {
						t.Fatal(err)
					}
				}
				want := bytes.Clone(directValue(st, 1))
				var err error
				if round%2 == 0 {
					want = bytes.Repeat([]byte{2}, len(want))
					err = s.Upsert(key, want)
				} else {
					want[0] = 2
					edit := func(v []byte) ([]byte, bool) { v[0] = 2; return v, true }
					err = s.Run(&Op{Kind: OpRMW, Key: key, InPlace: edit, Modify: func(u *Update) Verdict {
						u.New = append(u.New, u.Old...)
						u.New[0] = 2
						return Put
					}})
				}
				if err != nil {
					t.Fatal(err)
				}
				for n := range uint64(1000) { // more than memory holds
					if err := filler.Upsert(directKey(st, 100+n), directValue(st, n)); err != nil {
						t.Fatal(err)
					}
				}
				readBack(s.Read(key, nil)).Want(t, want, "round %d", round)
			}
			closeAll(t, s, filler, st)
		})
	}
}

// TestDirectCallsWaitForLocks makes plain calls while another session holds locks.
func TestDirectCallsWaitForLocks(t *testing.T) {
	for name, sizes := range directLayouts {
		t.Run(name, func(t *testing.T) {
			st := open(t, Options{Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1], Memory: 1 << 20})
			key, other := directKey(st, 1), directKey(st, 2)
			before, within, after := directValue(st, 1), directValue(st, 51), directValue(st, 101)
			if err := errors.Join(st.Upsert(context.Background(), key, before), st.Upsert(context.Background(), other, before)); err != nil {
				t.Fatal(err)
			}
			s, locker := ready(t, st), st.NewSession()
			began, read := make(chan struct{}), make(chan []byte)
			err := locker.Atomically(context.Background(), [][]byte{key}, func() error {
				go func() {
					_, err := s.Read(other, nil) // the session sees that there are locks
					close(began)
					got, keyErr := s.Read(key, nil)
					if err := errors.Join(err, keyErr); err != nil {
						t.Error(err)
					}
					read <- got
				}()
				testrun.Receive(t, "the session has read", began)
				err := locker.Upsert(key, within)
				for range 100 { // give the read time to fail
					runtime.Gosched()
				}
				select {
				case got := <-read:
					t.Errorf("%x was read while the key was locked", got)
				default:
				}
				return errors.Join(err, locker.Upsert(key, after))
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := testrun.Receive(t, "the read ends", read); !bytes.Equal(got, after) {
				t.Errorf("%x was read, want %x", got, after)
			}
			// A session that holds locks reads only the keys that it has locked.
			err = s.Atomically(context.Background(), [][]byte{key}, func() error {
				if _, err := s.Read(key, nil); err != nil {
					t.Error(err)
				}
				if _, err := s.Read(other, nil); !errors.Is(err, ErrNotLocked) {
					t.Errorf("another key: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			closeAll(t, s, locker, st)
		})
	}
}

// TestDirectCallsRefuseOtherSizes makes plain calls with keys and values that begin like those
// of a record but have other lengths.
func TestDirectCallsRefuseOtherSizes(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 40, Memory: 1 << 20})
	s := ready(t, st)
	key, value := key8(5), bytes.Repeat([]byte{7}, 40)
	if err := s.Upsert(key, value); err != nil {
		t.Fatal(err)
	}
	// All keys get the record's hash, so that only their lengths differ.
	s.hash = func([]byte) uint64 { return st.hash(key) }
	for _, bad := range [][]byte{key[:3:8], append(key[:8:8], 0), nil} {
		_, err := s.Read(bad, nil)
		if !errors.Is(err, ErrBadSize) {
			t.Errorf("read of a key of %d bytes: %v", len(bad), err)
		}
		if err := s.Upsert(bad, value); !errors.Is(err, ErrBadSize) {
			t.Errorf("upsert of a key of %d bytes: %v", len(bad), err)
		}
	}
	if err := s.Upsert(key, value[:39]); !errors.Is(err, ErrBadSize) {
		t.Errorf("a short value: %v", err)
	}
	readBack(s.Read(key, nil)).Want(t, value, "read")
	closeAll(t, s, st)
}

// TestDirectCallsKeepTheCount overwrites a record with an expiry by one without, in a store
// that counts its keys.
func TestDirectCallsKeepTheCount(t *testing.T) {
	now := int64(MinExpires)
	st := open(t, Options{Device: device.NewMemory(), Memory: 1 << 20, CountKeys: true, now: func() int64 { return now }})
	s := ready(t, st)
	if err := s.Run(&Op{Kind: OpUpsert, Key: []byte("key"), Value: []byte("value"), Expires: MinExpires + 1000}); err != nil {
		t.Fatal(err)
	}
	if err := s.Upsert([]byte("key"), []byte("other")); err != nil {
		t.Fatal(err)
	}
	now += 2000
	readBack(s.Read([]byte("key"), nil)).Want(t, []byte("other"), "read")
	if all, expiring, _ := st.KeyCount(); all != 1 || expiring != 0 {
		t.Errorf("%d keys, %d of them with an expiry; want one without", all, expiring)
	}
	closeAll(t, s, st)
}

// TestEditThatPanicsHoldsNothingUp panics in an InPlace of a direct plain call.
func TestEditThatPanicsHoldsNothingUp(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), Memory: 1 << 20})
	s := ready(t, st)
	key := []byte("key")
	if err := s.Upsert(key, []byte("value")); err != nil {
		t.Fatal(err)
	}
	inside := false
	op := Op{Kind: OpRMW, Key: key, Modify: func(*Update) Verdict { return Keep }, InPlace: func([]byte) ([]byte, bool) {
		inside = *(*uint64)(unsafe.Pointer(&s.handle)) != 0
		panic("in place")
	}}
	s.unusable = errors.New("not direct")
	if !panicking(func() { _ = s.Run(&op) }) || !inside {
		t.Errorf("no panic, or not direct, or not inside an epoch (%v)", inside)
	}
	s.unusable = nil
	if err := st.Commit(t.Context()); err != nil { // the epoch is free
		t.Fatal(err)
	}
	if err := s.Upsert(key, []byte("other")); err != nil { // and so is the record
		t.Fatal(err)
	}
	readBack(s.Read(key, nil)).Want(t, []byte("other"), "read")
	closeAll(t, s, st)
}
