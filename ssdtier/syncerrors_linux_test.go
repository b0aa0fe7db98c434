package ssdtier

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// failOnce makes the next sync of a segment fail, which the system reports once. It returns whether
// that was.
func failOnce(d *Device) *atomic.Bool {
	failed := new(atomic.Bool)
	d.syncFile = func(f *os.File) error {
		if failed.Swap(true) {
			return syncData(f)
		}
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: syscall.EIO}
	}
	return failed
}

// noSync is a file that can be written, and not synced.
func noSync(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// withDirectory calls do while the directory cannot be synced.
func withDirectory(t *testing.T, d *Device, do func() error) error {
	t.Helper()
	dir := d.lock.dir
	d.lock.dir = noSync(t)
	err := do()
	_ = d.lock.dir.Close()
	d.lock.dir = dir
	return err
}

// TestEarlySyncFails: what a sync beside the commits could not write is an error of what follows.
func TestEarlySyncFails(t *testing.T) {
	for name, next := range map[string]func(*Device) error{"Sync": (*Device).Sync, "Close": (*Device).Close} {
		t.Run(name, func(t *testing.T) {
			stayAway(t)
			c, _ := awayLog(t, Options{SegmentSize: minSegmentSize})
			failed := failOnce(c.d)
			c.d.syncEarly()
			if !failed.Load() {
				t.Fatal("nothing was synced early")
			}
			if err := next(c.d); !errors.Is(err, syscall.EIO) {
				t.Errorf("%v, want %v", err, syscall.EIO)
			}
			if again := c.killed(); again.JournalAway() != c.memory.Name() {
				t.Error("the commit in memory does not count any more")
			}
			if err := c.d.Close(); err != nil && !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
		})
	}
}

// TestSyncBesideEarlySync: a sync that begins while an early one fails does not miss its error.
func TestSyncBesideEarlySync(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	fill(t, d, sumUnit)
	begun, fail := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.syncFile = func(f *os.File) (err error) {
		once.Do(func() {
			close(begun)
			<-fail
			err = &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: syscall.EIO}
		})
		return err
	}
	early := make(chan struct{})
	go func() { d.syncEarly(); close(early) }()
	testrun.Receive(t, "the early sync begins", begun)
	synced := make(chan error, 1)
	go func() { synced <- d.Sync() }()
	s := d.segments.get(0)
	testrun.Until(t, "Sync is about to sync the segment", func() bool { return !s.dirty.Load() })
	close(fail)
	testrun.Receive(t, "the early sync ends", early)
	if err := testrun.Receive(t, "Sync ends", synced); !errors.Is(err, syscall.EIO) {
		t.Errorf("Sync: %v, want %v", err, syscall.EIO)
	}
	if err := d.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Close: %v, want %v", err, syscall.EIO)
	}
}

// TestSumHeaderIsWrittenAgain: after a sync that failed, what it was to write is not on the disk.
func TestSumHeaderIsWrittenAgain(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 2*sumUnit)
	openFile = func(name string, flag int, perm fs.FileMode) (*os.File, error) {
		if strings.HasSuffix(name, sumSuffix) {
			return noSync(t), nil
		}
		return os.OpenFile(name, flag, perm)
	}
	err := d.Sync()
	openFile = os.OpenFile
	if err == nil {
		t.Fatal("Sync succeeds without sums")
	}
	if err := os.WriteFile(d.path(sumName(0)), make([]byte, sumPageSize), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	again := (&crashed{t: t, d: d}).killed()
	if err := again.Start(2 * sumUnit); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, again, 0, 2*sumUnit)).Want(t, content, "what was synced")
}

// TestCloseAfterFailedSync: the sum of a block that may not be on the disk does not replace that of the
// block that is.
func TestCloseAfterFailedSync(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, sumUnit)
	old := padded(d, "old")
	if err := errors.Join(writeBlocks(t, d, old, sumUnit), d.Commit("m", nil)); err != nil {
		t.Fatal(err)
	}
	if err := writeBlocks(t, d, padded(d, "old and new"), sumUnit); err != nil {
		t.Fatal(err)
	}
	failOnce(d)
	if err := d.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync: %v, want %v", err, syscall.EIO)
	}
	if err := writeBlocks(t, d, padded(d, "old and newer"), sumUnit); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Close: %v, want %v", err, syscall.EIO)
	}
	dir := (&crashed{t: t, d: d}).copied()
	f, err := os.OpenFile(filepath.Join(dir, segmentName(0)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(old, sumUnit)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, dir, Options{SegmentSize: minSegmentSize})
	const tail = sumUnit + 3
	if err := again.Start(tail); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, again, 0, tail)).Want(t, append(content, "old"...), "what was committed")
}

// TestDirectorySyncFails: so does every later Sync, whatever synced the directory.
func TestDirectorySyncFails(t *testing.T) {
	for name, do := range map[string]func(*Device) error{
		"metadata": func(d *Device) error { return d.WriteMeta("m", make([]byte, journalMetas+1)) },
		"segment":  (*Device).Sync,
	} {
		t.Run(name, func(t *testing.T) {
			d := started(t, Options{SegmentSize: minSegmentSize})
			fill(t, d, sumUnit)
			if err := withDirectory(t, d, func() error { return do(d) }); !errors.Is(err, syscall.EINVAL) {
				t.Fatalf("without a sync of the directory: %v, want %v", err, syscall.EINVAL)
			}
			if err := d.Sync(); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("Sync: %v, want %v", err, syscall.EINVAL)
			}
			if err := d.Close(); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("Close: %v, want %v", err, syscall.EINVAL)
			}
		})
	}
}

// TestJournalAfterClose: a device that is closed leaves the journal to the next one.
func TestJournalAfterClose(t *testing.T) {
	stayAway(t)
	c, _ := awayLog(t, Options{SegmentSize: minSegmentSize})
	if err := c.d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.d.UseJournal(nil); !errors.Is(err, device.ErrClosed) {
		t.Errorf("UseJournal: %v", err)
	}
	if err := c.d.FetchJournal(c.memory); !errors.Is(err, device.ErrClosed) {
		t.Errorf("FetchJournal: %v", err)
	}
	if _, err := c.d.ReadMeta("tail"); !errors.Is(err, device.ErrClosed) {
		t.Errorf("ReadMeta: %v", err)
	}
}

// TestReadMetaBesideCommit: no commit moves metadata to the journal while it is read from its file.
func TestReadMetaBesideCommit(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	path := d.path(metaPrefix + "m")
	if err := syscall.Mkfifo(path, 0o666); err != nil { // to open it waits for the other side
		t.Fatal(err)
	}
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := d.ReadMeta("m")
		read <- result{data, err}
	}()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d.mu.TryLock() {
		d.mu.Unlock()
		t.Error("a commit may begin meanwhile")
	}
	_, err = f.Write(seal([]byte("x")))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	got := testrun.Receive(t, "the metadata is read", read)
	testrun.Bytes(got.data, got.err).Want(t, []byte("x"), "the metadata")
}

// TestCloseMakesDurable: what was written before a Close is there, if there is no journal, too.
func TestCloseMakesDurable(t *testing.T) {
	d := withoutJournal(t)
	content := fill(t, d, sumUnit)
	synced := 0
	d.syncFile = func(f *os.File) error { synced++; return syncData(f) }
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if synced != 1 || d.newFiles {
		t.Errorf("Close syncs %d segments, want 1; new names: %v", synced, d.newFiles)
	}
	again := mustOpen(t, d.Dir(), Options{SegmentSize: minSegmentSize})
	if err := again.Start(sumUnit); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, again, 0, sumUnit)).Want(t, content, "what was written")
}

// withoutJournal is a log whose commits sync all files.
func withoutJournal(t *testing.T) *Device {
	t.Helper()
	d := mustOpen(t, t.TempDir(), Options{SegmentSize: minSegmentSize})
	d.journal.impossible = true
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCloseAfterDirectorySyncFails: Close has the error, and what could be synced is there.
func TestCloseAfterDirectorySyncFails(t *testing.T) {
	d := withoutJournal(t)
	if err := withDirectory(t, d, func() error { return d.WriteCompanion([]byte("x")) }); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("WriteCompanion: %v, want %v", err, syscall.EINVAL)
	}
	content := fill(t, d, sumUnit)
	if err := d.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Close: %v, want %v", err, syscall.EINVAL)
	}
	again := mustOpen(t, d.Dir(), Options{SegmentSize: minSegmentSize})
	if err := again.Start(sumUnit); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, again, 0, sumUnit)).Want(t, content, "what was written")
}

// TestStartAfterDirectorySyncFails: neither Start nor a commit is made on a directory whose sync failed while
// the journal was made.
func TestStartAfterDirectorySyncFails(t *testing.T) {
	d := mustOpen(t, t.TempDir(), Options{SegmentSize: minSegmentSize})
	if err := withDirectory(t, d, d.makeJournal); err == nil {
		t.Fatal("the journal is durable without a sync of the directory")
	}
	if err := d.Start(0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Start: %v, want %v", err, syscall.EINVAL)
	}
	if err := d.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Close: %v, want %v", err, syscall.EINVAL)
	}

	d = started(t, Options{SegmentSize: minSegmentSize})
	if err := errors.Join(d.removeJournal(), withDirectory(t, d, func() error { d.openJournal(); return nil })); err != nil {
		t.Fatal(err)
	}
	if err := d.turnOver("m", []byte("x")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the commit: %v, want %v", err, syscall.EINVAL)
	}
	if err := d.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Close: %v, want %v", err, syscall.EINVAL)
	}
}

// TestRemovedSumsAreMadeAgain: a file of checksums that a commit misses is made again by the next Sync, and by Close.
func TestRemovedSumsAreMadeAgain(t *testing.T) {
	for name, next := range map[string]func(*Device) error{"Sync": (*Device).Sync, "Close": (*Device).Close} {
		t.Run(name, func(t *testing.T) {
			d := started(t, Options{SegmentSize: minSegmentSize})
			content := fill(t, d, sumUnit)
			if err := errors.Join(d.Sync(), os.Remove(d.path(sumName(0))), d.segments.get(0).checkNames(), next(d)); err != nil {
				t.Fatal(err)
			}
			again := mustOpen(t, (&crashed{t: t, d: d}).copied(), Options{SegmentSize: minSegmentSize})
			if err := again.Start(sumUnit); err != nil {
				t.Fatal(err)
			}
			testrun.Bytes(readAll(t, again, 0, sumUnit)).Want(t, content, "what was written")
		})
	}
}

// TestOddBlocks: a record with a block whose size no device has is none.
func TestOddBlocks(t *testing.T) {
	for _, size := range []int{0, sumUnit / 2, sumUnit, 2 * sumUnit, 3 * sumUnit, 4 * sumUnit, 2 * maxBlock} {
		r := journalRecord{generation: 1, blocks: []journalBlock{{addr: 0, size: size}}}
		want := size >= sumUnit && size <= maxBlock && size != 3*sumUnit
		if _, _, ok := parseRecord(r.appendTo(nil, sumUnit)); ok != want {
			t.Errorf("a block of %d bytes: %v", size, ok)
		}
	}
}
