//go:build linux && amd64 && !race

package epoch

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/mem"
)

// A session enters by a plain store and then loads markers; nothing in the processor
// keeps the loads behind the store. The mover sees to that: after its own store it makes
// every thread of the process execute a memory barrier, by membarrier. What a session
// stored before its barrier the mover sees, and what it loads after it sees the mover's
// store. A locked instruction per operation instead would keep the loads of one operation
// from overlapping with the next.
//
// Where the system call is missing or forbidden, as in a sandbox, sessions enter by an
// ordered store. Taking a page's write permission away is no substitute for membarrier: it
// interrupts all processors of the process only where they are not told of it by a
// broadcast in hardware (INVLPGB).

// publish stores e where movers look; it lets the session's later loads overtake the store
// unless the handle is ordered.
func (h *Handle) publish(e uint64) {
	if h.ordered {
		atomic.StoreUint64(&h.entered, e)
		return
	}
	mem.StoreRelease(&h.entered, e)
}

const (
	cmdExpedited         = 1 << 3
	cmdRegisterExpedited = 1 << 4
)

func membarrier(cmd uintptr) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	return errno
}

// canFence reports whether there is membarrier: decided once, before the first session joins.
// It registers the process, which waits for every processor: milliseconds that a process
// without sessions does not spend.
var canFence = sync.OnceValue(func() bool {
	return membarrier(cmdRegisterExpedited) == 0 && membarrier(cmdExpedited) == 0
})

// fence makes every running thread of the process pass a memory barrier, unless sessions
// enter in order.
func fence() {
	if !canFence() {
		return
	}
	for err := membarrier(cmdExpedited); err != 0; err = membarrier(cmdExpedited) {
		if err != unix.ENOMEM && err != unix.EINTR && err != unix.EAGAIN { // going on would not be safe
			panic(fmt.Errorf("epoch: membarrier was forbidden after sessions had begun to rely on it: %w", err))
		}
		runtime.Gosched()
	}
}
