package resp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Go's scheduler takes a processor away from a goroutine that is in a system call for
// long, and has another thread run others there meanwhile; that it may, a thread of its
// own looks at those goroutines every 20 µs, as long as there are some. For a loop, whose
// calls are over within microseconds, nothing is gained by this, and on a machine whose
// few processors the client needs as well it costs a twentieth of one, and now and then
// the wait for another processor. So a loop keeps its processor in the following calls
// and in poller.waitHeld, as it would in a computation. None of them takes longer than
// heldWait; a signal by which the runtime wants to stop all goroutines ends the wait.

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

// yieldHeld is runtime.Gosched among the goroutines that wait for this very processor:
// it wakes no thread that would look for one. Go's runtime keeps goyield for programs
// that name it so.
//
//go:linkname yieldHeld runtime.goyield
func yieldHeld()
