package kv

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
)

// TestExpiryInSeconds uses expiries before 1980, in each call that takes one. Nothing is
// stored, and existing records stay.
func TestExpiryInSeconds(t *testing.T) {
	for name, size := range map[string]int{"words": 8, "variable": 0} {
		t.Run(name, func(t *testing.T) {
			st := open(t, small(device.NewMemory(), size, size))
			s := st.NewSession()
			for n := range uint64(500) { // the first ones are on the device
				if err := s.Upsert(key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			for _, expires := range []int64{time.Now().Unix(), 1, -1, MinExpires - 1} {
				put := func(u *Update) Verdict {
					u.New, u.Expires = append(u.New, key8(9)...), expires
					return Put
				}
				for _, key := range [][]byte{key8(0), key8(499), key8(1000)} {
					ops := []Op{
						{Kind: OpUpsert, Key: key, Value: key8(9), Expires: expires},
						{Kind: OpInsert, Key: key, Value: key8(9), Expires: expires},
						{Kind: OpRMW, Key: key, Modify: put},
					}
					for _, op := range ops {
						if op.Kind == OpInsert && key8(1000)[0] != key[0] {
							op.Key = key8(1000)
						}
						check := func(how string, err error) {
							if !errors.Is(err, ErrBadExpiry) {
								t.Errorf("%s, kind %d, until %d: %v", how, op.Kind, expires, err)
							}
						}
						one := op
						check("run", s.Run(&one))
						check("store", st.Run(context.Background(), &one))
						check("batch", s.Do(context.Background(), []Op{op, {Kind: OpRead, Key: key}}))
						check("whole batch", s.DoWhole(context.Background(), []Op{op, op}))
						if err := errors.Join(s.Submit(&one), s.Wait(context.Background())); err != nil || s.Poll(make([]*Op, 1)) != 1 {
							t.Fatal(err)
						}
						check("stream", one.Err)
						check("atomically", s.Atomically(context.Background(), [][]byte{op.Key}, func() error { return s.Run(&one) }))
					}
					check := func(err error) {
						if !errors.Is(err, ErrBadExpiry) {
							t.Errorf("RMW until %d: %v", expires, err)
						}
					}
					check(s.RMW(key, put))
					check(st.RMW(context.Background(), key, put))
				}
			}
			for _, n := range []uint64{0, 499} {
				readBack(s.Read(key8(n), nil)).Want(t, key8(n), "key %d", n)
			}
			if _, err := s.Read(key8(1000), nil); !errors.Is(err, ErrNotFound) {
				t.Errorf("stored: %v", err)
			}
			// A past expiry that is plausible is accepted.
			if err := s.Run(&Op{Kind: OpUpsert, Key: key8(0), Value: key8(1), Expires: MinExpires}); err != nil {
				t.Error(err)
			}
			if _, err := s.Read(key8(0), nil); !errors.Is(err, ErrNotFound) {
				t.Errorf("a record that has expired: %v", err)
			}
			closeAll(t, s, st)
		})
	}
}

// TestDeleteOfTheExpiredCounts deletes keys that have expired but are still counted, in memory
// and on the device.
func TestDeleteOfTheExpiredCounts(t *testing.T) {
	for name, remove := range map[string]func(s *Session, key []byte) error{
		"Delete": func(s *Session, key []byte) error { return s.Delete(key) },
		"Remove": func(s *Session, key []byte) error { return s.RMW(key, func(*Update) Verdict { return Remove }) },
		"batch": func(s *Session, key []byte) error {
			return s.Do(context.Background(), []Op{{Kind: OpDelete, Key: key}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := int64(MinExpires)
			opts := small(device.NewMemory(), 0, 0)
			opts.CountKeys, opts.now = true, func() int64 { return now }
			st := open(t, opts)
			s := st.NewSession()
			const keys = 500
			for n := range uint64(keys) {
				putUntil(t, s, n, now+10)
			}
			now += 10 // they have expired but are still counted
			if all, _, _ := st.KeyCount(); all != keys {
				t.Fatalf("%d keys count", all)
			}
			for n := range uint64(keys) {
				for range 2 {
					if err := remove(s, key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				if all, expiring, _ := st.KeyCount(); all != int64(keys-1-n) || expiring != all {
					t.Fatalf("after %d are deleted %d keys count, %d of them expire", n+1, all, expiring)
				}
			}
			now += 10_000
			if all, expiring, _ := st.KeyCount(); all != 0 || expiring != 0 {
				t.Errorf("%d keys, %d of them expire", all, expiring)
			}
			closeAll(t, s, st)
		})
	}
}

// TestTimeToLive stores records with a time to live, in each way, and advances the clock.
func TestTimeToLive(t *testing.T) {
	opts := small(device.NewMemory(), 8, 8)
	now := int64(MinExpires) * 4
	opts.now = func() int64 { return now }
	st := open(t, opts)
	s := st.NewSession()
	for n, ttl := range []time.Duration{time.Nanosecond, time.Millisecond, 1500 * time.Microsecond, time.Hour} {
		key := key8(uint64(n))
		upsert := s.UpsertTTL
		if n%2 == 1 {
			upsert = func(key, value []byte, ttl time.Duration) error {
				return st.UpsertTTL(context.Background(), key, value, ttl)
			}
		}
		if err := upsert(key, key, ttl); err != nil {
			t.Fatal(err)
		}
		began, want := now, (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
		op := Op{Kind: OpRead, Key: key}
		if err := s.Run(&op); err != nil || !ExpiryTime(op.Expires).Equal(time.UnixMilli(began).Add(want)) {
			t.Errorf("for %v: %v, until %v", ttl, err, ExpiryTime(op.Expires))
		}
		now = began + want.Milliseconds() - 1
		if _, err := s.Read(key, nil); err != nil {
			t.Errorf("for %v: 1 ms before its end: %v", ttl, err)
		}
		now++
		if _, err := s.Read(key, nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("for %v: at its end: %v", ttl, err)
		}
	}
	if err := s.UpsertTTL(key8(8), key8(8), math.MaxInt64); err != nil {
		t.Errorf("for as long as there is: %v", err)
	}
	op := Op{Kind: OpRead, Key: key8(8)}
	if err := s.Run(&op); err != nil || op.Expires != now+math.MaxInt64/1_000_000+1 {
		t.Errorf("for as long as there is: %v, until %d", err, op.Expires)
	}
	for _, ttl := range []time.Duration{0, -time.Second} {
		if err := s.UpsertTTL(key8(9), key8(9), ttl); !errors.Is(err, ErrBadExpiry) {
			t.Errorf("for %v: %v", ttl, err)
		}
	}
	closeAll(t, s, st)
}

// TestExpiryAsTime converts times to milliseconds and back. The result is never earlier.
func TestExpiryAsTime(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
	for in, want := range map[time.Time]time.Time{
		{}:                                {},
		at:                                at,
		at.Add(1):                         at.Add(time.Millisecond),
		at.Add(time.Millisecond):          at.Add(time.Millisecond),
		at.Add(999_999 * time.Nanosecond): at.Add(time.Millisecond),
	} {
		if got := ExpiryTime(ExpiresAt(in)); !got.Equal(want) {
			t.Errorf("%v became %v", in, got)
		}
	}
	before := time.Now()
	if in := ExpiryTime(ExpiresIn(time.Hour)).Sub(before); in < time.Hour || in > time.Hour+time.Minute {
		t.Errorf("an hour is %v", in)
	}
}
