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

// A session enters by a plain store and then loads markers; the processor may reorder the loads
// before the store. So after its own store the mover makes every thread of the process execute
// a memory barrier, by membarrier. The mover sees what a session stored before its barrier, and
// the session's loads after it see the mover's store.
//
// If the system call is missing or forbidden, as in a sandbox, sessions enter by an ordered
// store. Removing a page's write permission is no substitute for membarrier: it interrupts the
// processors of the process only if they do not have a broadcast in hardware (INVLPGB).

// publish stores e for movers. The session's later loads may overtake the store unless the
// handle is ordered.
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

// canFence reports whether membarrier works. It is decided once, before the first session joins:
// registering the process waits for every processor, which takes milliseconds.
var canFence = sync.OnceValue(func() bool {
	return membarrier(cmdRegisterExpedited) == 0 && membarrier(cmdExpedited) == 0
})

// fence makes every running thread of the process execute a memory barrier, unless sessions are
// ordered.
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
