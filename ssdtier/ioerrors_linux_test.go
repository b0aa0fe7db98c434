package ssdtier

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// TestReadsAndWritesFail: a failed read or write reports the system's error once, with the
// file's name. Other segments keep working, and so does this one when the file is accessible
// again.
func TestReadsAndWritesFail(t *testing.T) { overEngines(t, testReadsAndWritesFail) }

func testReadsAndWritesFail(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	const half = minSegmentSize / 2
	content := fill(t, d, 2*minSegmentSize+half)
	told := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), segmentName(1)) || errors.Is(err, device.ErrCorrupt) {
			t.Errorf("%s: %v, want EBADF and the file's name", what, err)
		}
	}
	read := func(from, to int64) error {
		t.Helper()
		got, err := readAll(t, d, from, to)
		if err == nil && !bytes.Equal(got, content[from:to]) {
			t.Errorf(testrun.WrongMark+" wrong bytes from %d to %d", from, to)
		}
		return err
	}
	write := func(addr int64) error { // writes the same bytes each time
		return writeBlocks(t, d, content[addr:addr+sumUnit], addr)
	}

	heal := replaceFile(t, d, 1, unix.O_WRONLY)
	told("read", read(minSegmentSize+5, minSegmentSize+50))
	told("long read", read(minSegmentSize, 2*minSegmentSize))
	told("read of two segments", read(half, minSegmentSize+half))
	p := devicetest.NewPump(t, d, 16)
	for at := int64(0); at < int64(len(content)); at += sumUnit {
		if at/minSegmentSize == 1 {
			p.ReadFails(make([]byte, 100), at, unix.EBADF)
		} else {
			p.Read(make([]byte, 100), at, content[at:at+100])
		}
	}
	p.Close()
	if err := errors.Join(write(minSegmentSize), read(0, half), read(2*minSegmentSize, 2*minSegmentSize+half)); err != nil {
		t.Error(err)
	}
	heal()

	heal = replaceFile(t, d, 1, unix.O_RDONLY)
	told("write", write(minSegmentSize+sumUnit))
	if err := errors.Join(read(0, int64(len(content))), write(0), write(2*minSegmentSize)); err != nil {
		t.Error(err)
	}
	heal()

	if err := errors.Join(write(minSegmentSize+sumUnit), d.Sync(), read(0, int64(len(content)))); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// replaceFile replaces the descriptor of a segment by one that lacks the needed access mode.
// heal restores it.
func replaceFile(t *testing.T, d *Device, number int64, mode int) (heal func()) {
	t.Helper()
	s := d.segments.get(number)
	kept, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(s.file.Name(), mode|d.directFlag, 0)
	if err == nil {
		err = errors.Join(unix.Dup3(int(file.Fd()), s.fd, unix.O_CLOEXEC), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(unix.Dup3(kept, s.fd, unix.O_CLOEXEC), unix.Close(kept)); err != nil {
			t.Fatal(err)
		}
	}
}

// shortEnv names the engine for a child process of this test, whose files have a size limit.
const shortEnv = "REDYKV_TEST_SHORT_WRITES"

// TestShortWrites: a short write fails, leaves no wrong bytes, and can be repeated. The test
// runs itself in a child process with a limit on file sizes.
func TestShortWrites(t *testing.T) {
	if engine := os.Getenv(shortEnv); engine != "" {
		testEngine = Engine(engine)
		testShortWrites(t)
		return
	}
	overEngines(t, func(t *testing.T) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestShortWrites$")
		cmd.Env = append(os.Environ(), shortEnv+"="+string(testEngine))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}

func testShortWrites(t *testing.T) {
	signal.Ignore(unix.SIGXFSZ)
	d := started(t, Options{SegmentSize: minSegmentSize, Preallocate: -1})
	const before, limit, end = 6 * sumUnit, 8 * sumUnit, 12 * sumUnit
	content := fill(t, d, before)
	for i := range end - before {
		content = append(content, byte(i/sumUnit+1))
	}
	write := func() error { return writeBlocks(t, d, content[before:], before) }
	read := func(from, to int64) error {
		got, err := readAll(t, d, from, to)
		if err == nil && !bytes.Equal(got, content[from:to]) {
			t.Errorf(testrun.WrongMark+" wrong bytes from %d to %d", from, to)
		}
		return err
	}
	restrict := func(n uint64) {
		var now unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_FSIZE, &now)
		if now.Cur = min(n, now.Max); err == nil {
			err = unix.Setrlimit(unix.RLIMIT_FSIZE, &now)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	restrict(limit)
	for range 2 {
		if err := write(); !errors.Is(err, unix.EFBIG) || !strings.Contains(err.Error(), segmentName(0)) {
			t.Errorf("%v, want EFBIG and the file's name", err)
		}
		if info, err := os.Stat(d.path(segmentName(0))); err != nil || info.Size() != limit {
			t.Fatalf("the write was not short: %v, %v", info.Size(), err)
		}
		if err := read(0, before); err != nil {
			t.Error(err)
		}
		if read(before, limit) == nil || read(before, end) == nil {
			t.Error("bytes of a write that failed can be read")
		}
	}
	restrict(unix.RLIM_INFINITY)
	if err := errors.Join(write(), read(0, end), d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := errors.Join(d.Start(end), read(0, end)); err != nil {
		t.Error(err)
	}
}
