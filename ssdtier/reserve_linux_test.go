package ssdtier

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// fileSize returns the length of a segment's file.
func fileSize(t *testing.T, d *Device, number int64) int64 {
	t.Helper()
	info, err := os.Stat(d.path(segmentName(number)))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// reserves skips the test if devices do not reserve space here.
func reserves(t *testing.T, d *Device) {
	t.Helper()
	if d.noReserve.Load() {
		t.Skip("no space can be taken ahead here")
	}
}

// TestReserved: a segment reserves space beyond the end of the log. It cannot be read, and
// Close frees the unused part.
func TestReserved(t *testing.T) { overEngines(t, testReserved) }

func testReserved(t *testing.T) {
	opts := Options{SegmentSize: 8 << 20, Preallocate: 3 << 20}
	d := started(t, opts)
	const n = 5 * sumUnit
	content := fill(t, d, n)
	reserves(t, d)
	if size := fileSize(t, d, 0); size != n+minReserve {
		t.Errorf("after %d bytes the file has %d, want %d more", n, size, minReserve)
	}
	check := func(d *Device) {
		t.Helper()
		testrun.Bytes(readAll(t, d, 0, n)).Want(t, content, "read")
		for _, at := range []int64{n, n + 100, n + minReserve/2, n + 2*minReserve} {
			if _, err := readAll(t, d, at, at+10); !errors.Is(err, device.ErrNotHeld) {
				t.Errorf("reading what was never written, at %d: %v, want ErrNotHeld", at, err)
			}
		}
		if _, err := readAll(t, d, n-10, n+10); !errors.Is(err, device.ErrNotHeld) {
			t.Errorf("reading past the end: %v, want ErrNotHeld", err)
		}
	}
	check(d)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	// The state that a crash leaves.
	dir := t.TempDir()
	c := &crashed{t: t, d: d}
	for name, data := range c.files() {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if size := fileSize(t, d, 0); size != n {
		t.Errorf("a closed log of %d bytes has a file of %d", n, size)
	}
	for _, dir := range []string{d.Dir(), dir} {
		d := mustOpen(t, dir, opts)
		if err := d.Start(n); err != nil {
			t.Fatal(err)
		}
		if size := fileSize(t, d, 0); size != n {
			t.Errorf("a log started at %d has a file of %d bytes", n, size)
		}
		check(d)
	}
}

// TestReservedGrows: the reserved space grows with the log up to its limit, and never beyond a
// segment's size.
func TestReservedGrows(t *testing.T) {
	d := started(t, Options{SegmentSize: 4 << 20, Preallocate: 2 << 20})
	block := bytes.Repeat([]byte("content!"), 64<<10/8)
	want := map[int64]int64{ // length of the file by length of the log
		64 << 10:         64<<10 + 1<<20,
		1<<20 + 128<<10:  2 * (1<<20 + 128<<10),
		4<<20 - 64<<10:   4 << 20,
		4<<20 + 64<<10:   64<<10 + 2<<20,
		8<<20 - 1024<<10: 4 << 20,
	}
	for at := int64(0); at < 8<<20; at += int64(len(block)) {
		if err := writeBlocks(t, d, block, at); err != nil {
			t.Fatal(err)
		}
		reserves(t, d)
		written := at + int64(len(block))
		if size, ok := want[written]; ok {
			if got := fileSize(t, d, at>>22); got != size {
				t.Errorf("with %d bytes of log the file has %d, want %d", written, got, size)
			}
		}
	}
}

// TestNoReserve: without reserving, a file is as long as the log in it.
func TestNoReserve(t *testing.T) { overEngines(t, testNoReserve) }

func testNoReserve(t *testing.T) {
	d := started(t, Options{Preallocate: -1})
	const n = 3 * sumUnit
	content := fill(t, d, n)
	if size := fileSize(t, d, 0); size != n {
		t.Errorf("the file has %d bytes, want %d", size, n)
	}
	testrun.Bytes(readAll(t, d, 0, n)).Want(t, content, "read")
}

// TestDamageInReserve: below the end of the log, blocks without a checksum and blocks of zeros
// are damage, for any length of the file.
func TestDamageInReserve(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	fill(t, d, 6*sumUnit)
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	// The last two blocks and the last checksum were lost.
	segment, sums := d.path(segmentName(0)), d.path(sumName(0))
	if err := errors.Join(os.Truncate(segment, 4*sumUnit), os.Truncate(segment, 20*sumUnit),
		os.Truncate(sums, sumPageSize+8*5)); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(6*sumUnit - 100); err != nil {
		t.Fatal(err)
	}
	for block, want := range []error{nil, nil, nil, nil, device.ErrCorrupt, device.ErrCorrupt, device.ErrNotHeld} {
		if _, err := readAll(t, d, int64(block)*sumUnit, int64(block)*sumUnit+1); !errors.Is(err, want) {
			t.Errorf("block %d: %v, want %v", block, err, want)
		}
	}
}

// TestReserveOnFullDisk: a disk without space to reserve is filled completely nevertheless.
func TestReserveOnFullDisk(t *testing.T) { overEngines(t, testReserveOnFullDisk) }

func testReserveOnFullDisk(t *testing.T) {
	const size = 3 << 20
	dir := testrun.SmallDisk(t, "3m")
	d := mustOpen(t, dir, Options{SegmentSize: 16 << 20, Buffered: true})
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4*sumUnit)
	_, _ = rand.NewChaCha8([32]byte{8}).Read(page) // never fails
	end := 0
	for ; end < size; end += len(page) {
		if err := writeBlocks(t, d, page, int64(end)); err != nil {
			if !noSpace(err, segmentSuffix) && !noSpace(err, sumSuffix) {
				t.Fatal(err)
			}
			break
		}
	}
	if end < size-20*sumUnit {
		t.Errorf("a disk of %d bytes is full after %d", size, end)
	}
	for at := 0; at < end; at += len(page) {
		testrun.Bytes(readAll(t, d, int64(at), int64(at+len(page)))).Want(t, page, "at %d", at)
	}
	if err := d.Sync(); err != nil { // the checksums have space
		t.Error(err)
	}
}
