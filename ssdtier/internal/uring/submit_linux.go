package uring

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read enqueues a read of a file at an offset. It returns false if the ring is full or the
// kernel takes no more now: reap first. The file must be open until the completion.
func (r *Ring) Read(fd int, dst []byte, off int64, tag uint64) bool {
	return r.enqueue(opRead, fd, dst, off, tag)
}

// Write enqueues a write to a file at an offset, as Read does.
func (r *Ring) Write(fd int, src []byte, off int64, tag uint64) bool {
	return r.enqueue(opWrite, fd, src, off, tag)
}

func (r *Ring) enqueue(opcode uint8, fd int, buf []byte, off int64, tag uint64) bool {
	if len(r.free) == 0 || !r.room() {
		return false
	}
	i := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	o := &r.ops[i]
	o.tag, o.buf = tag, buf
	at := unsafe.SliceData(buf)
	if at != nil {
		o.pin.Pin(at)
	}
	r.add(sqe{
		opcode: opcode, fd: int32(fd), off: uint64(off),
		addr: uint64(uintptr(unsafe.Pointer(at))), len: uint32(len(buf)), userData: uint64(i),
	})
	return true
}

// end removes an operation that the kernel has ended or did not get.
func (r *Ring) end(i uint32) (tag uint64) {
	o := &r.ops[i]
	o.pin.Unpin()
	o.buf = nil
	r.free = append(r.free, i)
	return o.tag
}

// room reports whether one more request can be added. It submits a full submission ring.
func (r *Ring) room() bool {
	if r.unsubmitted() < uint32(len(r.sqes)) {
		return true
	}
	_ = r.Submit() // if it failed there is no room
	return r.unsubmitted() < uint32(len(r.sqes))
}

// add makes a request, which publish shows to the kernel.
func (r *Ring) add(e sqe) {
	r.sqes[r.tail&r.sqMask] = e
	r.tail++
}

// unsubmitted is the number of requests that the kernel has not taken.
func (r *Ring) unsubmitted() uint32 { return r.tail - atomic.LoadUint32(r.sqHead) }

// publish makes all requests visible to the kernel and returns the number of those that it has
// not taken.
func (r *Ring) publish() uint32 {
	atomic.StoreUint32(r.sqTail, r.tail)
	return r.unsubmitted()
}

// eager is the number of pending operations up to which Submit submits reads one at a time. An
// idle disk then starts the first while the others are prepared, and does not end all of them
// at the same time. On a virtual disk with 32 operations in flight that is a fifth more
// throughput, for a microsecond of processor time each. A busier disk is as fast with batches.
//
// Writes are always submitted together: those of a log are adjacent in the file, and the kernel
// merges what it gets at once.
const eager = 64

// Submit starts what was enqueued. What the kernel has no memory or room for stays enqueued,
// for the next Submit or Wait. After an error the ring cannot be used any more, and Retract
// returns what was not started.
func (r *Ring) Submit() error {
	for r.unsubmitted() > 0 {
		n := r.publish()
		if r.Pending()-int(n) < eager && !r.nextIsWrite() {
			n = 1
		}
		n, errno := r.enter(r.fd, n, 0, 0, nil)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN, errno == unix.EBUSY, errno == 0 && n == 0:
			return nil
		case errno != 0:
			return fmt.Errorf("uring: submit: %w", errno)
		}
	}
	return nil
}

// nextIsWrite reports whether the next request for the kernel is a write.
func (r *Ring) nextIsWrite() bool {
	return r.sqes[atomic.LoadUint32(r.sqHead)&r.sqMask].opcode == opWrite
}

// Retract removes an operation that the kernel has not taken, the newest first.
func (r *Ring) Retract() (tag uint64, ok bool) {
	for r.unsubmitted() > 0 {
		r.tail--
		atomic.StoreUint32(r.sqTail, r.tail)
		data := r.sqes[r.tail&r.sqMask].userData
		if data != wakeData {
			return r.end(uint32(data)), true
		}
		r.armed = false
	}
	return 0, false
}
