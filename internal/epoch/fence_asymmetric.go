//go:build linux && amd64 && !race

package epoch

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/words"
)

// A session enters by a plain store and then loads markers; nothing in the
// processor keeps the loads behind the store. The mover sees to that: after its
// own store it makes every thread of the process execute a memory barrier. What a
// session stored before its barrier the mover sees, and what it loads after it
// sees the mover's store. A locked instruction per operation instead would keep
// the loads of one operation from overlapping with the next.

// publish stores e where movers look, and lets the session's later loads overtake
// the store.
func (s *Slot) publish(e uint64) { words.Store(&s.entered, e) }

const (
	cmdExpedited         = 1 << 3
	cmdRegisterExpedited = 1 << 4
)

func membarrier(cmd uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	return errno == 0
}

// hasMembarrier registers the process, which waits for every processor: milliseconds that
// a process without sessions does not spend.
var hasMembarrier = sync.OnceValue(func() bool {
	return membarrier(cmdRegisterExpedited) && membarrier(cmdExpedited)
})

// fence makes every running thread of the process pass a memory barrier.
func fence() {
	if !hasMembarrier() || !membarrier(cmdExpedited) {
		fencePage.revoke()
	}
}

// page does what membarrier does where a sandbox forbids that: taking away the
// right to write to a page in use interrupts every processor that runs a thread of
// the process.
type page struct {
	mu     sync.Mutex
	memory []byte
}

var fencePage page

func (p *page) revoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.memory == nil {
		p.memory, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	}
	if err == nil {
		err = unix.Mprotect(p.memory, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err == nil {
		p.memory[0]++ // in use
		err = unix.Mprotect(p.memory, unix.PROT_READ)
	}
	if err != nil { // out of memory for a page: going on would not be safe
		panic(fmt.Errorf("epoch: neither membarrier nor a page to protect: %w", err))
	}
}
