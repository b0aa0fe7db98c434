package shm_test

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
)

// TestStoppedPeer reads and writes the memory of a stopped process.
func TestStoppedPeer(t *testing.T) { fabrictest.RunStoppedPeer(t, open) }

// TestNoSystemCalls reads and writes on a thread on which the kernel allows only the system
// calls of the Go runtime.
func TestNoSystemCalls(t *testing.T) {
	server, client := open(), open()
	defer func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	}()
	q, r := connect(t, server, client)
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if err := forbid(); err != nil {
			ended <- err
			return
		}
		ended <- useOneSided(q, r)
	}()
	if err := <-ended; errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		t.Skip("no system call filters here:", err)
	} else if err != nil {
		t.Error(err)
	}
}

func connect(t *testing.T, server, client fabric.Provider) (fabric.QueuePair, fabric.Remote) {
	t.Helper()
	l, err := server.Listen("", 16)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			_, _ = r.Accept(nil, fabric.ReadWrite)
		}
	}()
	q, err := client.Dial(t.Context(), l.Addr(), nil, 16)
	if err != nil {
		t.Fatal(err)
	}
	region, err := server.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	clear(region.Bytes()) // causes the page faults now
	r, err := q.Import(t.Context(), region.Token())
	if err != nil {
		t.Fatal(err)
	}
	return q, r
}

// useOneSided makes operations of all three kinds that need no system call, the last one while
// the peer is awake.
func useOneSided(q fabric.QueuePair, r fabric.Remote) error {
	buf := make([]byte, 4096)
	var done [3]fabric.Completion
	for i := range 300 {
		at := int64(i) * 512
		if err := errors.Join(q.Write(buf, r, at, 1), q.Read(buf, r, at, 2), q.WriteImm(buf[:8], r, at, 3, 3), q.Submit()); err != nil {
			return err
		}
		if n := q.Poll(done[:]); n != 3 {
			return errors.New("operations are not complete when they are submitted")
		}
		for _, d := range done {
			if d.Err != nil {
				return d.Err
			}
		}
	}
	return nil
}

// forbid allows this thread only the system calls of the Go runtime: locks, timers, signals,
// memory, and waking the poller by a write to an event file. Any other one ends the process
// with SIGSYS.
func forbid() error {
	const number, firstArgument = 0, 16 // in struct seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	unless := func(value uint32) unix.SockFilter { // skips the next instruction if different
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: value}
	}
	trap := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRAP}
	filter := []unix.SockFilter{load(number)}
	for _, call := range []uint32{
		unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_CLOCK_GETTIME,
		unix.SYS_EPOLL_PWAIT, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
		unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL, unix.SYS_GETPID, unix.SYS_GETTID,
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_PRCTL,
		unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	} {
		filter = append(filter, unless(call), allow)
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_WRITE}, trap, load(firstArgument))
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, d := range descriptors {
		if what, _ := os.Readlink("/proc/self/fd/" + d.Name()); what == "anon_inode:[eventfd]" {
			fd, err := strconv.ParseUint(d.Name(), 10, 32)
			if err != nil {
				return err
			}
			filter = append(filter, unless(uint32(fd)), allow)
		}
	}
	filter = append(filter, trap)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
