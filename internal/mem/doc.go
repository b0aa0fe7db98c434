// Package mem holds what the rest of the module needs to know about memory:
//
//   - Alloc: large zeroed memory outside the Go heap, in huge pages where the kernel
//     provides them, so that the garbage collector does not scan it and address
//     translation is cheap. Under the race detector, and where there is no mmap, the
//     memory comes from the Go heap: the detector follows accesses only there.
//   - CopyIn, AppendOut, Edit, CopyBytesIn, CopyBytesOut: copies from and to memory that
//     other goroutines or processes write at the same time.
//   - LoadFence, StoreFence, StoreRelease: the memory ordering that such copies need.
//   - Prefetch, PrefetchLines: loads into the processor's caches ahead of use.
//   - Total, Available, Resident, Private: how much memory there is and is used.
package mem
