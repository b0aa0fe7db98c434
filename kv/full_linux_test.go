package kv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/ssdtier"
)

// TestFullDisk writes until the disk is full: errors say so and name the file.
// What was committed can be read, there and after the store was opened again on
// the disk that still is full; with space it goes on.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system takes the right to mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
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
			if err = st.Upsert(key8(n), key8(n+1)); err != nil {
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
			if v, err := st.Read(key8(i), nil); err != nil || string(v) != string(key8(i+1)) {
				t.Fatalf("key %d: %x, %v", i, v, err)
			}
		}
	}
	read()
	for kind := range checkpointKinds {
		if _, err := st.Checkpoint(context.Background(), CheckpointOptions{Kind: kind}); err != nil && !full(err) {
			t.Errorf("%v checkpoint: %v", kind, err)
		}
	}
	if err := st.Close(); !full(err) {
		t.Errorf("Close: %v", err)
	}
	ballast := filepath.Join(dir, "ballast")
	for range 2 { // the first one gives back what was written and not committed
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
	if err := st.Upsert(key8(0), key8(1)); err != nil {
		t.Error(err)
	}
	closeAll(t, st)
}
