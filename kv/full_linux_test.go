package kv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/ssdtier"
)

// smallDisk mounts a file system of 1 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system takes the right to mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDiskGoesOn fills a disk and then frees space. The store continues, and has all
// acknowledged writes.
func TestFullDiskGoesOn(t *testing.T) {
	dir := smallDisk(t)
	ballast := filepath.Join(dir, "lost+found")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o666); err != nil {
		t.Fatal(err)
	}
	opts := small(nil, 8, 8)
	opts.PageSize, opts.Memory, opts.Logger = 4096, 64<<10, silent
	raise := func() *Store {
		ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Buffered: true, Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		opts.Device = ssd
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
			if v, err := st.Read(context.Background(), key8(i), nil); err != nil || string(v) != string(key8(i+1)) {
				t.Fatalf("key %d: %x, %v", i, v, err)
			}
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
	dir := smallDisk(t)
	opts := small(nil, 8, 8)
	opts.PageSize, opts.Memory, opts.Logger = 4096, 64<<10, silent
	raise := func() {
		ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Buffered: true, Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		opts.Device = ssd
	}
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
			if v, err := st.Read(context.Background(), key8(i), nil); err != nil || string(v) != string(key8(i+1)) {
				t.Fatalf("key %d: %x, %v", i, v, err)
			}
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
