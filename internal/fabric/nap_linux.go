package fabric

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// nap suspends this thread for ns nanoseconds. The thread's timer slack would add 50 us;
// removing it costs one system call, little compared with the nap.
func nap(ns int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // refused: naps are longer
	t := unix.NsecToTimespec(ns)
	_ = unix.Nanosleep(&t, nil) // a signal may end it early: the caller checks the time
}
