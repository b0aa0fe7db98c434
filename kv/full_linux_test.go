package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of a size in bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small file system takes the right to mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk writes until the disk under a store is full: writers and commits
// get an error that names a file, everything that was acknowledged can still be
// read, and what was committed is there when the store is opened again on a disk
// with space, which then takes writes.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "4m")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(dir, "store")
	opts := kv.Options{KeySize: 8, ValueSize: 1000, Memory: 256 << 10, PageSize: 16 << 10, Records: 1000}
	open := func() *kv.Store {
		t.Helper()
		ssd, err := ssdtier.OpenWith(store, ssdtier.Options{SegmentSize: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		opts.Device = ssd
		st, err := kv.Open(opts)
		if err != nil {
			t.Fatal(errors.Join(err, ssd.Close()))
		}
		return st
	}
	full := func(err error) bool {
		return errors.Is(err, unix.ENOSPC) && strings.Contains(err.Error(), store)
	}
	key := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	value := func(n uint64) []byte { return bytes.Repeat(key(n), 125) }
	verify := func(st *kv.Store, from, to uint64) {
		t.Helper()
		for n := from; n < to; n++ {
			if got, err := st.Read(key(n), nil); err != nil || !bytes.Equal(got, value(n)) {
				t.Fatalf("key %d of %d: %.8x, %v", n, to, got, err)
			}
		}
	}

	st := open()
	const committed = 1000
	written := uint64(0)
	var err error
	for ; written < 10_000; written++ {
		if written == committed {
			if err := st.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if err = st.Upsert(key(written), value(written)); err != nil {
			break
		}
	}
	if !full(err) || written <= committed {
		t.Fatalf("after %d records: %v; want ENOSPC and the name of a file", written, err)
	}
	verify(st, 0, written)
	if err := st.Commit(context.Background()); !full(err) {
		t.Errorf("Commit: %v", err)
	}
	if _, err := st.Checkpoint(context.Background(), kv.CheckpointOptions{Kind: kv.FoldOver}); !full(err) {
		t.Errorf("Checkpoint: %v", err)
	}
	verify(st, 0, written)
	if err := st.Close(); !full(err) {
		t.Errorf("Close: %v", err)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	st = open()
	verify(st, 0, committed)
	for n := range uint64(100) {
		if err := st.Upsert(key(committed+n), value(committed+n)); err != nil {
			t.Fatalf("with space again: %v", err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = open()
	verify(st, 0, committed+100)
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

// TestCheckpointOnFullDisk makes checkpoints for which there is no space: they
// fail, leave nothing behind, and the store goes on; with space they succeed.
func TestCheckpointOnFullDisk(t *testing.T) {
	dir := smallDisk(t, "1m")
	store := filepath.Join(dir, "store")
	ssd, err := ssdtier.OpenWith(store, ssdtier.Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	opts := kv.Options{Device: ssd, KeySize: 8, ValueSize: 1000, Memory: 2 << 20, PageSize: 64 << 10, Records: 1000, FixedIndex: true}
	st, err := kv.Open(opts)
	if err != nil {
		t.Fatal(errors.Join(err, ssd.Close()))
	}
	key := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	write := func(from, to, version uint64) {
		t.Helper()
		for n := from; n < to; n++ {
			if err := st.Upsert(key(n), bytes.Repeat(key(n+version), 125)); err != nil {
				t.Fatal(err)
			}
		}
	}
	verify := func(from, to, version uint64) {
		t.Helper()
		for n := from; n < to; n++ {
			if got, err := st.Read(key(n), nil); err != nil || !bytes.Equal(got, bytes.Repeat(key(n+version), 125)) {
				t.Fatalf("key %d: %.8x, %v", n, got, err)
			}
		}
	}
	write(0, 1500, 0) // in memory, but too much for the disk
	for _, kind := range []kv.CheckpointKind{kv.Snapshot, kv.Incremental} {
		_, err := st.Checkpoint(context.Background(), kv.CheckpointOptions{Kind: kind})
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "snapshot") {
			t.Errorf("%v: %v; want ENOSPC and the name of the object", kind, err)
		}
		left, err := ssd.ListObjects()
		if err != nil || len(left) > 0 || len(st.Checkpoints()) > 0 {
			t.Errorf("%v leaves %v, %v, %v", kind, left, st.Checkpoints(), err)
		}
	}
	write(0, 100, 1)
	verify(0, 100, 1)
	verify(100, 1500, 0)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	info, err := st.Checkpoint(context.Background(), kv.CheckpointOptions{Kind: kv.Snapshot})
	if err != nil {
		t.Fatalf("with space: %v", err)
	}
	write(0, 1500, 2) // not in the checkpoint
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if opts.Device, err = ssdtier.Open(store); err != nil {
		t.Fatal(err)
	}
	opts.Recover = info.Name
	if st, err = kv.Open(opts); err != nil {
		t.Fatal(err)
	}
	verify(0, 100, 1)
	verify(100, 1500, 0)
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
