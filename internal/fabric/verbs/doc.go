// Package verbs is the fabric over RDMA: libibverbs and librdmacm, through cgo,
// under the build tag verbs. Without the tag [Open] only returns an error.
//
// A connection is a reliable queue pair, made by rdma_cm, and beside it a TCP
// connection for control messages: private data, the import and revocation of regions, credit
// for immediates, and the end of the connection. It carries no data, and reads and writes do
// not wait for it.
//
// # Tokens
//
// An adapter checks 32-bit keys, which can be guessed. So the queue pairs of each peer process
// have their own protection domain, and a region is registered in it when the peer shows the
// region's token: no other key is valid on these connections. The peer's other connections use the
// same registration, also those that it makes within some seconds after all of them broke. A dialer
// names its process by a number that only it and the listener know.
//
// An access error ends a queue pair, so the initiator must not cause one: it checks bounds
// against the imported size, and a region is revoked before it is closed. Each peer that has
// imported the region completes its pending operations, starts no more, and releases the
// loan. A peer that does not release it in time is disconnected. Then the region is deregistered;
// the adapter disconnects a peer that continues to use the key.
//
// # Order
//
// A queue pair executes in order with one exception: later operations may overtake a read. A
// write to bytes that a pending read may access is fenced, and so is every immediate while a
// read is pending.
//
// # Memory
//
// Adapters access registered memory only. Operations on memory of the provider's own regions
// access it directly; others use a ring of registered memory in each queue pair, which costs a
// copy. Registered memory stays in place when the process starts another one, because Go
// starts processes without copying its memory (vfork).
//
// When a connection ends, its queue pair is destroyed before its operations complete: an
// adapter may continue an operation after an error, and the buffers then belong to the caller.
package verbs

// Name is the provider's name.
const Name = "verbs"
