package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the processor time used by this process, or 0 if it is not known.
func ProcessCPU() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// ThreadCPU returns the processor time used by the calling thread, or 0 if it is not known.
// The caller locks its goroutine to the thread.
func ThreadCPU() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
