package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/ssdtier"
)

// ssdOn opens a log in small segments.
func ssdOn(t *testing.T, dir string) device.Device {
	t.Helper()
	ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Buffered: true, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	return ssd
}

// TestFullDiskGoesOn fills a disk and then frees space. The store continues, and has all
// acknowledged writes.
func TestFullDiskGoesOn(t *testing.T) {
	dir := testrun.SmallDisk(t, "1m")
	ballast := filepath.Join(dir, "lost+found")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o666); err != nil {
		t.Fatal(err)
	}
	opts := small(nil, 8, 8)
	opts.PageSize, opts.Memory, opts.Logger = 4096, 64<<10, silent
	raise := func() *Store {
		opts.Device = ssdOn(t, dir)
		return open(t, opts)
	}
	st := raise()
	n := uint64(0)
	upsert := func() error {
		err := st.Upsert(context.Background(), key8(n), key8(n+1))
		if err == nil {
			n++
		}
		return err
	}
	var err error
	for err == nil {
		err = upsert()
	}
	if !errors.Is(err, device.ErrNoSpace) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("on a full disk: %v", err)
	}
	if err := st.Commit(context.Background()); !errors.Is(err, device.ErrNoSpace) {
		t.Errorf("Commit on a full disk: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for until := n + 5000; n < until; {
		if err := upsert(); err != nil && !errors.Is(err, device.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	if err := st.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for i := range n {
			readBack(st.Read(context.Background(), key8(i), nil)).Want(t, key8(i+1), "key %d", i)
		}
		closeAll(t, st)
		st = raise()
	}
	closeAll(t, st)
}

// TestFullDisk writes until the disk is full. Errors say so and name the file. Committed
// records can be read, also after the store was reopened on the full disk. With space it
// continues.
func TestFullDisk(t *testing.T) {
	dir := testrun.SmallDisk(t, "1m")
	opts := small(nil, 8, 8)
	opts.PageSize, opts.Memory, opts.Logger = 4096, 64<<10, silent
	raise := func() { opts.Device = ssdOn(t, dir) }
	full := func(err error) bool {
		return errors.Is(err, unix.ENOSPC) && strings.Contains(err.Error(), dir)
	}
	raise()
	st := open(t, opts)
	mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot, Name: "empty"})
	committed, n := uint64(0), uint64(0)
	var err error
	for err == nil {
		for range 1000 {
			if err = st.Upsert(context.Background(), key8(n), key8(n+1)); err != nil {
				break
			}
			n++
		}
		if err == nil {
			if err = st.Commit(context.Background()); err == nil {
				committed = n
			}
		}
	}
	if !full(err) {
		t.Fatalf("on a full disk: %v", err)
	}
	read := func() {
		t.Helper()
		for i := range committed {
			readBack(st.Read(context.Background(), key8(i), nil)).Want(t, key8(i+1), "key %d", i)
		}
	}
	read()
	for kind := range manifest.Kinds {
		if _, err := st.Checkpoint(context.Background(), CheckpointOptions{Kind: kind}); err != nil && !full(err) {
			t.Errorf("%v checkpoint: %v", kind, err)
		}
	}
	if err := st.Close(); !full(err) {
		t.Errorf("Close: %v", err)
	}
	ballast := filepath.Join(dir, "ballast")
	for range 2 { // the first one frees the space of uncommitted records
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		closeAll(t, f)
		raise()
		if st, err = Open(opts); err != nil {
			t.Fatalf("opening on a full disk: %v", err)
		}
		read()
		if err := st.Close(); err != nil && !full(err) {
			t.Errorf("Close: %v", err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	raise()
	st = open(t, opts)
	read()
	if err := st.Upsert(context.Background(), key8(0), key8(1)); err != nil {
		t.Error(err)
	}
	closeAll(t, st)
}

// value104 is a value of 104 bytes, so that few keys fill a disk.
func value104(n uint64) []byte { return bytes.Repeat(key8(n), 13) }

// TestClearOnFullDisk: Clear frees a disk that is full, whatever was committed before, and the next
// write finds space. What was written since is there after a restart.
func TestClearOnFullDisk(t *testing.T) {
	for _, tc := range []struct {
		name string
		tier func(ssd device.Device) device.Device
	}{
		{"SSD", func(ssd device.Device) device.Device { return ssd }},
		{"cached", func(ssd device.Device) device.Device {
			memory := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 1 << 20})
			return device.NewTieredWith(device.TieredOptions{Logger: silent}, memory, ssd)
		}},
		{"committed in memory", func(ssd device.Device) device.Device {
			return device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: silent}, device.NewMemoryWith(device.MemoryOptions{Volatile: true}), ssd)
		}},
	} {
		for _, commits := range []bool{true, false}[:testrun.Raced(2, 1)] {
			t.Run(fmt.Sprintf("%s,commits=%t", tc.name, commits), func(t *testing.T) {
				testClearOnFullDisk(t, tc.tier, commits)
			})
		}
	}
}

func testClearOnFullDisk(t *testing.T, tier func(ssd device.Device) device.Device, commits bool) {
	dir := testrun.SmallDisk(t, "6m")
	opts := small(nil, 8, 104)
	opts.PageSize, opts.Memory, opts.Logger, opts.CountKeys = 4096, 64<<10, silent, true
	raise := func() *Store {
		opts.Device = tier(ssdOn(t, dir))
		return open(t, opts)
	}
	st := raise()
	ctx := t.Context()
	fill := func(salt uint64) (n uint64, err error) {
		for ; err == nil && n < 1e6; n++ {
			if err = st.Upsert(ctx, key8(n), value104(n+salt)); err == nil && commits && n%200 == 0 {
				err = st.Commit(ctx)
			}
		}
		return n - 1, err
	}
	for salt := range uint64(3) {
		n, err := fill(salt)
		if !errors.Is(err, device.ErrNoSpace) || n < 5000 {
			t.Fatalf("after %d keys: %v, want a full disk", n, err)
		}
		if err := st.Commit(ctx); !errors.Is(err, device.ErrNoSpace) {
			t.Fatalf("Commit on a full disk: %v", err)
		}
		if err := st.Clear(ctx); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(1000) {
			if err := st.Upsert(ctx, key8(i), value104(i+100+salt)); err != nil {
				t.Fatalf("write %d after Clear: %v", i, err)
			}
		}
		if err := st.Commit(ctx); err != nil {
			t.Fatalf("Commit after Clear: %v", err)
		}
		check := func() {
			t.Helper()
			for i := range uint64(1000) {
				readBack(st.Read(ctx, key8(i), nil)).Want(t, value104(i+100+salt), "key %d", i)
			}
			if all, _, _ := st.KeyCount(); all != 1000 {
				t.Fatalf("%d keys", all)
			}
		}
		check()
		if salt == 1 {
			continue // the log goes on where it is
		}
		closeAll(t, st)
		st = raise()
		check()
	}
	// Nothing is written after the Clear: Close finds space.
	if _, err := fill(9); !errors.Is(err, device.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := st.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	closeAll(t, st)
	st = raise()
	if all, _, _ := st.KeyCount(); all != 0 {
		t.Errorf("%d keys", all)
	}
	closeAll(t, st)
}

// TestCommitWritten: a store that ends on a full disk keeps what is there of the log, with the right
// number of keys.
func TestCommitWritten(t *testing.T) {
	for _, commits := range []bool{false, true} {
		t.Run(fmt.Sprintf("commits=%t", commits), func(t *testing.T) { testCommitWritten(t, commits) })
	}
}

func testCommitWritten(t *testing.T, commits bool) {
	dir := testrun.SmallDisk(t, "6m")
	opts := small(nil, 8, 104)
	opts.PageSize, opts.Memory, opts.Logger, opts.CountKeys = 4096, 64<<10, silent, true
	raise := func() *Store {
		opts.Device = ssdOn(t, dir)
		return open(t, opts)
	}
	st := raise()
	ctx := t.Context()
	session, err := st.NewNamedSession("named")
	if err != nil {
		t.Fatal(err)
	}
	n, committed := uint64(0), uint64(0)
	for err == nil {
		if err = session.Upsert(key8(n), value104(n+7)); err != nil {
			break
		}
		if n++; commits && n == 5000 {
			if err = st.Commit(ctx); err == nil {
				committed = n
			}
		}
	}
	if !errors.Is(err, device.ErrNoSpace) {
		t.Fatalf("after %d keys: %v, want a full disk", n, err)
	}
	closeAll(t, session)
	last := st.LastCommit()
	lost, err := st.CommitWritten(ctx)
	if err != nil || lost < 1 || lost > opts.Memory {
		t.Fatalf("%d bytes are lost, %v", lost, err)
	}
	if again, err := st.CommitWritten(ctx); err != nil || again != lost {
		t.Fatalf("the second time %d bytes are lost, before %d: %v", again, lost, err)
	}
	if st.LastCommit() != last {
		t.Error("LastCommit has changed")
	}
	if err := st.Close(); !errors.Is(err, device.ErrNoSpace) {
		t.Errorf("Close: %v", err)
	}
	if _, err := st.CommitWritten(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for range 2 { // on the full disk, and then with space
		st = raise()
		kept := uint64(0)
		for kept < n {
			v, err := st.Read(ctx, key8(kept), nil)
			if errors.Is(err, ErrNotFound) {
				break
			}
			if err != nil || !bytes.Equal(v, value104(kept+7)) {
				t.Fatalf("key %d: %x, %v", kept, v, err)
			}
			kept++
		}
		if size := int64(120); int64(n-kept)*size > lost || kept <= committed {
			t.Fatalf("%d of %d keys are there, %d bytes were lost", kept, n, lost)
		}
		if all, _, _ := st.KeyCount(); all != int64(kept) {
			t.Errorf("%d keys are counted, want %d", all, kept)
		}
		if p, ok := st.CommitPoint("named"); ok != commits || p.Until != committed {
			t.Errorf("commit point %+v, %t, want %d", p, ok, committed)
		}
		closeAll(t, st)
	}
}
