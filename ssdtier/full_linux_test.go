package ssdtier

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/testrun"
)

func noSpace(err error, file string) bool {
	return errors.Is(err, unix.ENOSPC) && strings.Contains(err.Error(), file)
}

// TestFullDisk writes until the disk is full, frees some space, and continues.
func TestFullDisk(t *testing.T) { overEngines(t, testFullDisk) }

func testFullDisk(t *testing.T) {
	dir := testrun.SmallDisk(t, "512k")
	d := mustOpen(t, dir, Options{SegmentSize: minSegmentSize, Buffered: true})
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	const page = 3 * sumUnit // so that the last page is written in part
	content := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{6}).Read(content) // never fails
	end := 0
	var err error
	for err == nil && end+page <= len(content) {
		if err = writeBlocks(t, d, content[end:end+page], int64(end)); err == nil {
			end += page
		}
	}
	if !noSpace(err, segmentSuffix) && !noSpace(err, sumSuffix) || end < 200_000 {
		t.Fatalf("after %d bytes: %v, want ENOSPC and the file's name", end, err)
	}
	read := func(from int) {
		t.Helper()
		testrun.Bytes(readAll(t, d, int64(from), int64(end))).Want(t, content[from:end], "reading what was written")
	}
	read(0)
	if err := d.Sync(); err != nil { // the checksums have space
		t.Errorf("Sync: %v", err)
	}
	// Reads of the failed page return correct bytes or an error.
	if got, err := readAll(t, d, int64(end), int64(end+page)); err == nil && !bytes.Equal(got, content[end:end+page]) {
		t.Error(testrun.WrongMark, "wrong bytes from a write that failed")
	}

	// Truncation needs no space.
	const begin = 2*minSegmentSize + 9
	if err := d.Truncate(begin); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := writeBlocks(t, d, content[end:end+page], int64(end)); err != nil {
			t.Fatalf("with space again: %v", err)
		}
		end += page
	}
	read(begin)
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, dir, Options{Buffered: true})
	if err := d.Start(int64(end)); err != nil {
		t.Fatal(err)
	}
	read(begin)
}

// TestFullDiskElsewhere: on a full disk that has no space for a journal either, metadata and objects
// fail without changing anything or leaving files behind. They succeed once there is space.
func TestFullDiskElsewhere(t *testing.T) { overEngines(t, testFullDiskElsewhere) }

func testFullDiskElsewhere(t *testing.T) {
	dir := testrun.SmallDisk(t, "2m")
	d := mustOpen(t, dir, Options{SegmentSize: minSegmentSize, Buffered: true})
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	content := fill(t, d, minSegmentSize)
	before := bytes.Repeat([]byte("before"), 1000)
	after := bytes.Repeat([]byte("after!"), 1000)
	if err := d.WriteMeta("m", before); err != nil {
		t.Fatal(err)
	}
	putObject(t, d, "o", before, 1000)
	files := func() int {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	check := func(want []byte) {
		t.Helper()
		testrun.Bytes(d.ReadMeta("m")).Want(t, want, "metadata")
		o, err := d.OpenObject("o")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = o.Close() }()
		got := make([]byte, len(want))
		_, err = o.ReadAt(got, 0)
		testrun.Bytes(got, err).Want(t, want, "object")
		testrun.Bytes(readAll(t, d, 0, minSegmentSize)).Want(t, content, "log")
	}
	write := func() (meta, object error) {
		t.Helper()
		w, err := d.CreateObject("o")
		if err != nil {
			t.Fatal(err)
		}
		_, object = w.Write(after)
		return d.WriteMeta("m", after), errors.Join(object, w.Commit())
	}

	testrun.FillDisk(t, dir)
	was := files()
	if err := d.Sync(); err != nil {
		t.Errorf("Sync: %v", err)
	}
	meta, object := write()
	if !noSpace(meta, "meta.m") || !noSpace(object, "object.o") {
		t.Errorf("on a full disk: %v; %v; want ENOSPC and the names of the files", meta, object)
	}
	check(before)
	if n := files(); n != was {
		t.Errorf("%d files were %d before", n, was)
	}

	// A full disk can be opened and read.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	testrun.FreeSpace(t, dir)
	d = mustOpen(t, dir, Options{Buffered: true})
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	content = fill(t, d, minSegmentSize)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if meta, object = write(); meta != nil || object != nil {
		t.Errorf("with space again: %v; %v", meta, object)
	}
	check(after)
	testrun.FillDisk(t, dir)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, dir, Options{Buffered: true})
	if err := d.Start(minSegmentSize - 5); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, d, 0, minSegmentSize-5)).Want(t, content[:minSegmentSize-5], "on a full disk, opened again")
}

// TestSyncOnFullDisk: what was written has space for its checksums.
func TestSyncOnFullDisk(t *testing.T) { overEngines(t, testSyncOnFullDisk) }

func testSyncOnFullDisk(t *testing.T) {
	dir := testrun.SmallDisk(t, "1m")
	d := mustOpen(t, dir, Options{SegmentSize: minSegmentSize, Buffered: true})
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	content := fill(t, d, 3*minSegmentSize)
	testrun.FillDisk(t, dir)
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, dir, Options{Buffered: true})
	if err := d.Start(3 * minSegmentSize); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, d, 0, 3*minSegmentSize)).Want(t, content, "read")
}

// TestMetaOnFullDisk: metadata and small commits go on on a full disk, through turns of the journal,
// and are there after Close.
func TestMetaOnFullDisk(t *testing.T) { overEngines(t, testMetaOnFullDisk) }

func testMetaOnFullDisk(t *testing.T) {
	dir := testrun.SmallDisk(t, "8m")
	var want []byte
	for round := range 2 {
		d := mustOpen(t, dir, Options{Buffered: true})
		if round > 0 {
			testrun.Bytes(d.ReadMeta("m")).Want(t, want, "opened again")
		}
		if err := d.Start(0); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			testrun.FillDisk(t, dir)
		}
		generation := d.journal.at.generation
		for n := range 100 {
			want = bytes.Repeat([]byte{byte(round + 1), byte(n)}, 50<<10)
			write := d.WriteMeta
			if n%2 == 0 {
				write = d.Commit
			}
			if err := write("m", want); err != nil {
				t.Fatalf("metadata %d: %v", n, err)
			}
		}
		if d.journal.at.generation < generation+3 {
			t.Error("the journal has not turned over")
		}
		if err := d.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		if _, err := os.Stat(d.path(journalName)); err != nil {
			t.Errorf("the journal: %v", err)
		}
	}
	testrun.FreeSpace(t, dir)
	d := mustOpen(t, dir, Options{Buffered: true})
	if err := errors.Join(d.Start(0), d.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.path(journalName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal, with space: %v", err)
	}
	testrun.Bytes(mustOpen(t, dir, Options{Buffered: true}).ReadMeta("m")).Want(t, want, "the file")
}

// TestReadOnlyDisk: Open of a read-only directory returns an error with its name.
func TestReadOnlyDisk(t *testing.T) {
	dir := testrun.SmallDisk(t, "1m")
	if err := mustOpen(t, dir, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), dir+" is not writable") {
		t.Errorf("%v, want one that says that %s is not writable", err, dir)
	}
}

// TestSegmentsOfSmallDisks: the default segment size depends on the size of the file system.
// Once chosen, it stays.
func TestSegmentsOfSmallDisks(t *testing.T) {
	for total, want := range map[int64]int64{
		0: DefaultSegmentSize, 1 << 40: DefaultSegmentSize, 32 << 30: DefaultSegmentSize, 32<<30 - 1: DefaultSegmentSize / 2,
		1 << 30: 32 << 20, 900 << 20: 16 << 20, 1 << 20: 16 << 20,
	} {
		if got := segmentSizeFor(total); got != want {
			t.Errorf("%d bytes of disk have segments of %d, want %d", total, got, want)
		}
	}
	dir := testrun.SmallDisk(t, "1g")
	for range 2 {
		d := mustOpen(t, dir, Options{})
		if d.opts.SegmentSize != 32<<20 {
			t.Errorf("segments of %d bytes", d.opts.SegmentSize)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseBringsHome: after Close the directory has the commits that were in memory, though the disk is
// full, or a block of theirs was not written.
func TestCloseBringsHome(t *testing.T) {
	stayAway(t)
	for _, tc := range []struct {
		name       string
		full, owed bool
	}{{"full", true, false}, {"owed", false, true}, {"both", true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := testrun.SmallDisk(t, "16m")
			opts := Options{SegmentSize: minSegmentSize, Buffered: true}
			d := mustOpen(t, dir, opts)
			if err := errors.Join(d.Start(0), d.UseJournal(newOtherMemory(1<<20))); err != nil {
				t.Fatal(err)
			}
			block := bytes.Repeat([]byte("b"), d.Alignment())
			at := int64(0)
			for i := range 3 {
				if err := errors.Join(writeBlocks(t, d, block, at), d.Commit("m", fmt.Append(nil, i))); err != nil {
					t.Fatal(err)
				}
				at += int64(len(block))
			}
			want := "2"
			if tc.owed {
				if done, err := d.CommitWith(block, at, "m", []byte("3")); !done || err != nil {
					t.Fatalf("%t, %v", done, err)
				}
				at += int64(len(block))
				want = "3"
			}
			if !d.journal.isAway {
				t.Fatal("no commit is in memory")
			}
			if tc.full {
				testrun.FillDisk(t, dir)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d = mustOpen(t, dir, opts)
			if name := d.JournalAway(); name != "" {
				t.Fatalf("the last commits are in %q", name)
			}
			testrun.Bytes(d.ReadMeta("m")).Want(t, []byte(want), "metadata")
			if err := d.Start(at); err != nil {
				t.Fatal(err)
			}
			testrun.Bytes(readAll(t, d, at-int64(len(block)), at)).Want(t, block, "the last block")
			if tc.full {
				testrun.FreeSpace(t, dir)
			}
		})
	}
}
