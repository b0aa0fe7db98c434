// Package uring is Linux's io_uring for reads and writes of files: many operations with one
// system call.
//
// A [Ring] is used as every queue of this module: Read and Write enqueue operations under a
// tag, Submit starts all of them, Reap takes completions, and Wait parks until there is one.
//
// Three things are particular to Go:
//   - The kernel fills memory that the garbage collector must not free meanwhile. So a ring
//     pins the memory of an operation until its completion is reaped, and a global table
//     refers to every ring until Close: a ring that is dropped with pending operations is
//     leaked, not freed.
//   - Wait parks a thread in the kernel rather than a goroutine in the netpoller: it wakes
//     earlier than through an eventfd and a second thread, and one system call can both submit
//     and wait. The end of a context wakes it by an eventfd that the ring polls, as Wake does.
//   - A goroutine may change its thread, and requests belong to the thread that submitted
//     them: when that thread ends, the kernel may cancel them. They complete with ECANCELED,
//     as others may with EINTR or EAGAIN; the caller repeats them in another way.
//
// [Probe] reports whether rings work: not on other systems than Linux, on kernels older than
// 5.11, or where they are forbidden.
package uring

// Completion is the end of one operation.
type Completion struct {
	Tag uint64 // as given to Read or Write
	// Res is the number of bytes read or written, which may be fewer than requested, or the
	// negative number of a system error.
	Res int32
}

// MaxDepth is the largest number of pending operations of a ring.
const MaxDepth = 1 << 16
