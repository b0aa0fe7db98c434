package poll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// When a system call takes long, Go's scheduler gives its processor to another thread. To find
// such calls, a thread of the runtime checks all goroutines in system calls every 20 µs. A
// loop's calls end within microseconds and gain nothing from that. On a machine whose few
// processors the client needs as well, the checks cost a twentieth of a processor, and
// sometimes the loop loses its processor. So the calls below and Poller.WaitHeld keep the
// processor, like a computation. None takes longer than the caller's time-out in milliseconds.
// The signal by which the runtime stops all goroutines ends a wait.

// transfer is unix.Read or unix.Write of a non-blocking file.
func transfer(call uintptr, fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Yield is runtime.Gosched limited to the goroutines in this processor's queue: it wakes
// no other thread. Go's runtime keeps goyield linkable for programs like this one.
//
//go:linkname Yield runtime.goyield
func Yield()
