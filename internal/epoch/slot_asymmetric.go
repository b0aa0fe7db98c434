//go:build linux && amd64 && !race

package epoch

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// asymmetric says that the kernel can make all threads of the process execute a
// memory barrier. Then sessions enter by a plain store, and it is the mover who
// makes sure, after its own store, that every earlier one of theirs is visible
// and that their later loads see his. A locked instruction per operation instead
// would keep the loads of one operation from overlapping with the next.
var asymmetric = registerBarrier()

const (
	cmdExpedited         = 1 << 3
	cmdRegisterExpedited = 1 << 4
)

func membarrier(cmd uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	return errno == 0
}

func registerBarrier() bool { return membarrier(cmdRegisterExpedited) && membarrier(cmdExpedited) }

// publish stores e where movers look. On amd64 a plain store is not reordered
// with earlier loads and stores, so what the session did inside is done when it
// is seen outside; that later loads do not overtake it is fence's business.
// Atomic loads before and after keep the compiler from moving or merging it.
func (s *Slot) publish(e uint64) {
	if asymmetric {
		s.entered = e
	} else {
		atomic.StoreUint64(&s.entered, e)
	}
}

// fence makes every thread of the process pass a memory barrier.
func fence() {
	if asymmetric && !membarrier(cmdExpedited) {
		panic("epoch: the kernel takes back a membarrier that it had granted")
	}
}
