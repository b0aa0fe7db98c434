package allocator_test

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// processEnd returns a function that waits for the end of any running process, not only of
// a child.
func processEnd(t *testing.T, pid int) (wait func() error) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pidfd of process %d: %v", pid, err)
	}
	return func() error {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(testTimeout.Milliseconds()))
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(poll, int(testTimeout.Milliseconds()))
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("process %d has not ended", pid)
		}
		return errors.Join(err, unix.Close(fd))
	}
}
