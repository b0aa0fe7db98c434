package uring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxEntries bounds the submission ring. A full ring is submitted.
	maxEntries = 1 << 10
	// wakeData is the userData of the request that Wake completes. The userData of an
	// operation is its index in ops.
	wakeData = math.MaxUint64
)

// Ring is an io_uring, owned by one goroutine at a time; others may only Wake it.
//
// Two rings of entries are shared with the kernel. The owner moves the tail of the submission
// ring and the head of the completion ring, and the kernel the other ends. Each side loads the
// other end, writes or reads entries, and then moves its own end: so an entry belongs to one
// side at a time.
type Ring struct {
	fd    int
	enter enterFunc
	maps  [2][]byte // both rings; the requests

	sqes    []sqe
	sqMask  uint32
	sqHead  *uint32 // moved by the kernel
	sqTail  *uint32
	sqFlags *uint32 // set by the kernel
	tail    uint32  // of the requests made; those from *sqTail on are to be published

	cqes   []cqe
	cqMask uint32
	cqHead *uint32
	cqTail *uint32 // moved by the kernel

	ops  []op     // pending operations, by userData
	free []uint32 // of ops

	wake  *os.File // an eventfd
	armed bool     // a request waits for wake
	waits uint     // in the kernel, so far

	watched <-chan struct{} // the end of the context that wakes the ring, or nil
	unwatch func() bool

	timeout kernelTime // of enter, here because it must not be on a stack
	arg     waitArg
}

// op is a pending operation with its pinned memory.
type op struct {
	tag uint64
	buf []byte
	pin runtime.Pinner
}

// live keeps rings from the garbage collector until they are closed, and open counts them.
var (
	live sync.Map // keys: *Ring
	open atomic.Int64
)

// descriptors is the number of file descriptors of a ring: its own and that of its eventfd.
const descriptors = 2

// Spare reports whether one more ring leaves half of the process's file descriptors for other
// uses.
func Spare() bool {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return true // New fails if not
	}
	return uint64(open.Load()+1)*descriptors <= limit.Cur/2
}

// New makes a ring of up to depth pending operations.
func New(depth int) (*Ring, error) {
	if depth < 1 || depth > MaxDepth {
		return nil, fmt.Errorf("uring: depth %d, want 1 to %d", depth, MaxDepth)
	}
	// One more than depth, for Wake. If the kernel's limit is lower, the kernel keeps
	// completions until there is room (featNoDrop).
	return newRing(depth, min(depth+1, maxEntries), depth+1)
}

// newRing makes a ring with at least that many entries for requests and for completions. The
// kernel rounds up to powers of two.
func newRing(depth, requests, completions int) (_ *Ring, err error) {
	p := params{flags: setupCQSize | setupClamp, cqEntries: uint32(completions)}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(requests), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("uring: io_uring_setup: %w", errno)
	}
	r := &Ring{enter: enter, fd: int(fd)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.release())
		}
	}()
	if p.features&features != features {
		return nil, fmt.Errorf("uring: the kernel is older than Linux 5.11 (features %#x): %w", p.features, errors.ErrUnsupported)
	}
	if err := r.mapRings(&p); err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("uring: eventfd: %w", err)
	}
	r.wake = os.NewFile(uintptr(wake), "eventfd")
	r.ops, r.free = make([]op, depth), make([]uint32, depth)
	for i := range r.free {
		r.free[i] = uint32(depth - 1 - i)
	}
	live.Store(r, nil)
	open.Add(1)
	return r, nil
}

// mapRings maps the memory that is shared with the kernel.
func (r *Ring) mapRings(p *params) (err error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	size := max(p.sq.array+4*p.sqEntries, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	if r.maps[0], err = unix.Mmap(r.fd, offRing, int(size), prot, flags); err != nil {
		return fmt.Errorf("uring: map the rings: %w", err)
	}
	if r.maps[1], err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), prot, flags); err != nil {
		return fmt.Errorf("uring: map the requests: %w", err)
	}
	word := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.maps[0][at])) }
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(unsafe.SliceData(r.maps[1]))), p.sqEntries)
	r.sqMask, r.sqHead, r.sqTail, r.sqFlags = *word(p.sq.mask), word(p.sq.head), word(p.sq.tail), word(p.sq.flags)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(word(p.cq.cqes))), p.cqEntries)
	r.cqMask, r.cqHead, r.cqTail = *word(p.cq.mask), word(p.cq.head), word(p.cq.tail)
	// The submission ring holds indexes: entry i is always request i.
	for i := range p.sqEntries {
		*word(p.sq.array + 4*i) = i
	}
	return nil
}

// Pending is the number of operations that were not reaped yet.
func (r *Ring) Pending() int { return len(r.ops) - len(r.free) }

// Close retracts what was not started, waits for pending operations, and releases the ring. If
// waiting fails, the ring is not freed: its operations may still complete.
func (r *Ring) Close() error {
	if r.ops == nil {
		return nil
	}
	for _, ok := r.Retract(); ok; _, ok = r.Retract() {
		continue
	}
	for r.Pending() > 0 {
		var done [64]Completion
		if r.Reap(done[:]) > 0 {
			continue
		}
		if err := r.Wait(context.Background()); err != nil {
			return fmt.Errorf("%w: %d pending operations are lost", err, r.Pending())
		}
	}
	r.watch(context.Background())
	live.Delete(r)
	open.Add(-1)
	r.ops, r.free = nil, nil
	return r.release()
}

// release releases the resources of New.
func (r *Ring) release() (err error) {
	for _, m := range r.maps {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	if r.wake != nil {
		err = errors.Join(err, r.wake.Close())
	}
	if err = errors.Join(err, unix.Close(r.fd)); err != nil {
		return fmt.Errorf("uring: close: %w", err)
	}
	return nil
}
