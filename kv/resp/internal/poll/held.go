package poll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// During a system call that takes long, Go's scheduler gives the processor to another
// thread. To find such calls, a thread of the runtime looks every 20 µs at all goroutines
// that are in one. A loop's calls end within microseconds, so it gains nothing from that;
// on a machine whose few processors the client needs as well, it costs a twentieth of a
// processor, and sometimes the wait for another one. The calls below and Poller.WaitHeld
// therefore keep the processor, as a computation does. None takes longer than the caller's
// time-out in milliseconds; the signal by which the runtime stops all goroutines ends a wait.

// readHeld is unix.Read of a file that does not block.
func readHeld(fd int, b []byte) (int, error) { return transfer(unix.SYS_READ, fd, b) }

// writeHeld is unix.Write to a file that does not block.
func writeHeld(fd int, b []byte) (int, error) { return transfer(unix.SYS_WRITE, fd, b) }

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
