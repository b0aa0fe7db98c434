package kv

import (
	"context"
	"testing"

	"github.com/redykv/redykv/device"
)

// byFirstByte is a KeyClass.
func byFirstByte(key []byte) uint8 { return key[0] }

// TestKeyCountOf counts keys of several classes through deletions, expiry, a Clear, compaction,
// crashes, and restarts with and without classes.
func TestKeyCountOf(t *testing.T) {
	ctx := context.Background()
	now := int64(MinExpires)
	disk := device.NewMemory()
	opts := small(disk, 0, 0)
	opts.CountKeys, opts.KeyClass, opts.now = true, byFirstByte, func() int64 { return now }
	st := open(t, opts)
	want := func(when string, all, expiring [3]int64) {
		t.Helper()
		for class := range uint8(3) {
			if a, e, ok := st.KeyCountOf(class); a != all[class] || e != expiring[class] || !ok {
				t.Errorf("%s: class %d has %d keys, %d of them expire, %v; want %d and %d", when, class, a, e, ok, all[class], expiring[class])
			}
		}
		if a, e, _ := st.KeyCount(); a != all[0]+all[1]+all[2] || e != expiring[0]+expiring[1]+expiring[2] {
			t.Errorf("%s: %d keys, %d of them expire", when, a, e)
		}
	}
	reopen := func(classes func([]byte) uint8) {
		t.Helper()
		crash(t, st)
		disk = disk.Reopen()
		opts.Device, opts.KeyClass = disk, classes
		st = open(t, opts)
	}
	put := func(class, n byte, expires int64) {
		t.Helper()
		op := Op{Kind: OpUpsert, Key: []byte{class, n}, Value: []byte("value"), Expires: expires}
		if err := st.Run(ctx, &op); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		if err := st.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for n := range byte(30) {
		for class := range byte(3) {
			for range class { // class 0 is empty, and keys are overwritten
				put(class, n, 0)
			}
		}
		put(2, 100+n, now+10_000)
	}
	want("after the first keys", [3]int64{0, 30, 60}, [3]int64{0, 0, 30})
	commit()
	put(0, 1, 0) // lost by the crash
	reopen(byFirstByte)
	want("after a crash", [3]int64{0, 30, 60}, [3]int64{0, 0, 30})
	for n := range byte(10) {
		if err := st.Delete(ctx, []byte{1, n}); err != nil {
			t.Fatal(err)
		}
		put(2, 100+n, 0)
	}
	want("after deletions", [3]int64{0, 20, 60}, [3]int64{0, 0, 20})
	commit()
	if _, err := st.Compact(ctx, CompactOptions{Until: st.log.Tail()}); err != nil {
		t.Fatal(err)
	}
	commit()
	reopen(byFirstByte)
	want("after compaction", [3]int64{0, 20, 60}, [3]int64{0, 0, 20})

	reopen(nil)
	if _, _, ok := st.KeyCountOf(1); ok {
		t.Error("keys are counted by class without KeyClass")
	}
	if a, e, _ := st.KeyCount(); a != 80 || e != 20 {
		t.Errorf("without classes: %d keys, %d of them expire, want 80 and 20", a, e)
	}
	put(0, 5, now+10_000)
	commit()
	reopen(byFirstByte)
	want("with classes again", [3]int64{1, 20, 60}, [3]int64{1, 0, 20})
	now += 20_000
	want("after the expiry", [3]int64{0, 20, 40}, [3]int64{})
	put(0, 5, 0) // the expired record is not counted a second time
	want("after a new value", [3]int64{1, 20, 40}, [3]int64{})
	mustClear(t, st)
	want("after a Clear", [3]int64{}, [3]int64{})
	put(1, 1, 0)
	commit()
	reopen(byFirstByte)
	want("at the end", [3]int64{0, 1, 0}, [3]int64{})
	closeAll(t, st)
}

// TestKeyClassNeedsCounting: KeyClass alone has no effect, so it is refused.
func TestKeyClassNeedsCounting(t *testing.T) {
	opts := small(device.NewMemory(), 0, 0)
	opts.KeyClass = byFirstByte
	if st, err := Open(opts); err == nil {
		t.Error("Open succeeded")
		closeAll(t, st)
	}
}

// TestWrongKeyCount opens a store whose count of its keys is below zero, as after a fault. It counts
// them again.
func TestWrongKeyCount(t *testing.T) {
	disk := device.NewMemory()
	opts := small(disk, 8, 8)
	opts.CountKeys = true
	st := open(t, opts)
	for n := range uint64(10) {
		if err := st.Upsert(t.Context(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	st.mu.Lock()
	st.keysPast[0] -= 100
	st.mu.Unlock()
	closeAll(t, st)
	opts.Device = disk.Reopen()
	st = open(t, opts)
	if n, _, ok := st.KeyCount(); n != 10 || !ok {
		t.Errorf("%d keys, %v", n, ok)
	}
	closeAll(t, st)
}
