package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU is the processor time that this process has had, or 0 where that is not
// known.
func ProcessCPU() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// ThreadCPU is the processor time that the calling thread has had, or 0 where that is
// not known. A goroutine asks locked to its thread.
func ThreadCPU() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
