package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the processor time that this process has used, or 0 where that is not
// known.
func ProcessCPU() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// ThreadCPU returns the processor time that the calling thread has used, or 0 where that is
// not known. The calling goroutine is locked to its thread.
func ThreadCPU() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
