package fabric

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// nap has the kernel suspend this thread for so many nanoseconds. The timer slack
// that would make it 50 us more belongs to the thread, and costs a system call
// to take away: little beside the nap.
func nap(ns int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // refused: naps are longer
	t := unix.NsecToTimespec(ns)
	_ = unix.Nanosleep(&t, nil) // cut short by a signal: the caller looks again
}
