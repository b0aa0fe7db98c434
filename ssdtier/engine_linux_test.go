package ssdtier

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/ssdtier/internal/uring"
)

// forbidEnv, if set, makes this program a process without io_uring. It says when rings are
// forbidden and with which error, such as "before ENOSYS".
const forbidEnv = "SSDTIER_TEST_FORBID"

// forbidRings makes io_uring_setup fail in this process from now on, as seccomp filters of
// containers do.
func forbidRings(errno unix.Errno) error {
	const (
		load       = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jumpEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret        = unix.BPF_RET | unix.BPF_K
		retErrno   = 0x00050000
		retAllow   = 0x7fff0000
		ofCallsNum = 0 // offset in struct seccomp_data
	)
	filter := []unix.SockFilter{
		{Code: load, K: ofCallsNum},
		{Code: jumpEqual, K: unix.SYS_IO_URING_SETUP, Jt: 0, Jf: 1},
		{Code: ret, K: retErrno | uint32(errno)},
		{Code: ret, K: retAllow},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// The filter applies to all threads.
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	if e != 0 || thread != 0 {
		return fmt.Errorf("seccomp: %w, thread %d", e, thread)
	}
	return nil
}

// TestForbidden: if io_uring is missing or forbidden, the pool is used, and a device with
// EngineUring returns an error. The test runs itself in child processes.
func TestForbidden(t *testing.T) {
	if when := os.Getenv(forbidEnv); when != "" {
		if err := withoutRings(t, when); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := uring.Probe(); err != nil {
		t.Skip(err)
	}
	for _, when := range []string{"before ENOSYS", "before EPERM", "before ENOMEM", "after EPERM"} {
		t.Run(when, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestForbidden$", "-test.v")
			cmd.Env = append(os.Environ(), forbidEnv+"="+when)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if strings.Contains(string(out), "SKIP") {
				t.Skipf("%s", out)
			}
		})
	}
}

// withoutRings opens a directory, before or after rings are forbidden, and uses it.
func withoutRings(t *testing.T, when string) (err error) {
	errno := map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM, "ENOMEM": unix.ENOMEM}[strings.Fields(when)[1]]
	var log bytes.Buffer
	opts := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	forbid := func() {
		if err := forbidRings(errno); err != nil {
			t.Skip(err)
		}
	}
	insists := t.TempDir()
	want := EngineUring
	if strings.HasPrefix(when, "before") {
		want = EnginePool
		forbid()
		if _, err := OpenWith(insists, Options{Engine: EngineUring}); !errors.Is(err, errno) || !strings.Contains(err.Error(), insists) {
			return fmt.Errorf("with engine uring: %w, want %w and the directory's name", err, errno)
		}
	}
	d := mustOpen(t, t.TempDir(), opts)
	if d.Engine() != want {
		return fmt.Errorf("engine %s, want %s", d.Engine(), want)
	}
	if want == EngineUring {
		// io_uring was available at Open and is not any more: new queues use the pool, unless
		// the options require io_uring.
		insisting := mustOpen(t, insists, Options{Engine: EngineUring})
		forbid()
		if _, err := insisting.NewQueue(1); !errors.Is(err, errno) || !strings.Contains(err.Error(), insists) {
			return fmt.Errorf("a queue of engine uring: %w, want %w and the directory's name", err, errno)
		}
	}
	if err := d.Start(0); err != nil {
		return err
	}
	content := fill(t, d, 25*sumUnit)
	got, err := readAll(t, d, 0, 25*sumUnit)
	if err != nil {
		return fmt.Errorf("reading what was written: %w", err)
	}
	if !bytes.Equal(got, content) {
		return fmt.Errorf("%w reading what was written", testrun.ErrWrong)
	}
	if !strings.Contains(log.String(), "no io_uring") || !strings.Contains(log.String(), d.Dir()) {
		return fmt.Errorf("nobody was told: %s", log.String())
	}
	return nil
}

// TestRingFails: the pool takes over from a ring that fails, whichever call detects that.
func TestRingFails(t *testing.T) {
	if err := uring.Probe(); err != nil {
		t.Skip(err)
	}
	d := started(t, Options{Engine: EngineUring})
	content := fill(t, d, 1<<20)
	for _, first := range []string{"Submit", "Wait"} {
		q, err := d.NewQueue(8)
		if err != nil {
			t.Fatal(err)
		}
		var got [8][100]byte
		src := device.AlignedBuffer(sumUnit, d.Alignment())
		copy(src, content)
		breakRings(t)
		for round := range 3 {
			for i := range 7 {
				if err := q.Read(got[i][:], int64(1000*i), uint64(i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Write(src, 0, 7); err != nil {
				t.Fatal(err)
			}
			if first == "Submit" {
				if err := q.Submit(); err != nil {
					t.Fatal(err)
				}
			}
			for tag, c := range collect(t, q, 8) {
				if c.Err != nil {
					t.Fatalf("%s, round %d: %+v", first, round, c)
				}
				if tag < 7 {
					testrun.Bytes(got[tag][:], nil).Want(t, content[1000*tag:1000*tag+100], "%s, round %d", first, round)
				}
			}
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// breakRings replaces the descriptor of each ring of this process by another file.
func breakRings(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	broken := 0
	for _, e := range entries {
		var fd int
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); to != "anon_inode:[io_uring]" {
			continue
		}
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			t.Fatal(err)
		}
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		broken++
	}
	if broken == 0 {
		t.Fatal("there is no ring")
	}
}
