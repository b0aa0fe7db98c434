package uring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface, as in linux/io_uring.h.

// sqe is a request: struct io_uring_sqe.
type sqe struct {
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	opFlags  uint32
	userData uint64
	_        [3]uint64
}

// cqe is a completion: struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// sqOffsets are offsets in the mapping: struct io_sqring_offsets.
type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	userAddr                                            uint64
}

// cqOffsets is struct io_cqring_offsets.
type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	userAddr                                            uint64
}

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     sqOffsets
	cq                                                                     cqOffsets
}

// waitArg is struct io_uring_getevents_arg.
type waitArg struct {
	sigmask   uint64
	sigmaskSz uint32
	_         uint32
	ts        uint64
}

// kernelTime is struct __kernel_timespec.
type kernelTime struct{ sec, nsec int64 }

const (
	opPollAdd = 6
	opRead    = 22
	opWrite   = 23

	setupCQSize = 1 << 3
	setupClamp  = 1 << 4

	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featExtArg     = 1 << 8 // Linux 5.11
	features       = featSingleMmap | featNoDrop | featExtArg

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3

	sqCQOverflow = 1 << 1 // a flag of the submission ring

	offRing = 0
	offSQEs = 0x10000000
)

// enterFunc is the type of enter, which tests replace.
type enterFunc func(fd int, submit, wait uint32, flags uintptr, arg *waitArg) (submitted uint32, errno unix.Errno)

// enter submits requests, and waits for that many completions, without a timeout if arg is
// nil.
func enter(fd int, submit, wait uint32, flags uintptr, arg *waitArg) (submitted uint32, errno unix.Errno) {
	var size uintptr
	if arg != nil {
		flags |= enterExtArg
		size = unsafe.Sizeof(*arg)
	}
	r, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait),
		flags, uintptr(unsafe.Pointer(arg)), size)
	return uint32(r), errno
}
