// Package uring is Linux' io_uring, as far as reads and writes of files need it: many
// operations for one system call, which nobody waits for one by one.
//
// A [Ring] has the shape of every queue here: Read and Write enqueue operations
// under a tag, Submit rings the doorbell once for all of them, Reap takes
// completions, and Wait parks until there is one.
//
// Three things are particular to Go:
//   - The kernel fills memory that the garbage collector must neither free nor move
//     meanwhile. So a ring holds on to the memory of an operation, pinned, until its
//     completion was reaped, and the program holds on to every ring until Close:
//     one that is dropped with operations under way is leaked, not freed.
//   - Wait parks a thread in the kernel rather than a goroutine in the netpoller. It
//     wakes sooner by the way through an eventfd and a second thread, and one system
//     call can both submit and wait. The end of a context
//     wakes it as anybody can, by an eventfd that the ring polls.
//   - A goroutine changes its thread, and requests belong to the thread that
//     submitted them: when that ends, the kernel may cancel them. They complete with
//     ECANCELED then, as others may with EINTR or EAGAIN; who can, tries them again
//     in another way.
//
// [Probe] reports whether rings work here. On other systems, and where the kernel is
// older than Linux 5.11 or forbids them, they do not.
package uring

// Completion is the end of one operation.
type Completion struct {
	Tag uint64 // as given to Read or Write
	// Res is how many bytes were read or written, which may be fewer than asked
	// for, or the negative number of a system error.
	Res int32
}

// MaxDepth is the most operations under way that a ring can be made for.
const MaxDepth = 1 << 16
