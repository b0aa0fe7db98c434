// Package verbs is the fabric over RDMA: libibverbs and librdmacm, through cgo,
// under the build tag verbs. Without the tag there is only [Open], which says so.
//
// A connection is a reliable queue pair, made by rdma_cm, and beside it a TCP
// connection for what one end must ask or tell the other: private data, the
// import of regions, their revocation, credit for immediates, and that the other
// end is gone. Data never goes that way, and reads and writes never wait for it.
//
// # Tokens
//
// An adapter checks 32-bit keys, which can be guessed. So each queue pair has a
// protection domain of its own, and a region is registered in it when the peer
// shows the region's token: no other key opens anything on this connection.
//
// A peer's error kills a queue pair, so that the one who asks must not make any:
// bounds are checked on this side, against the size that the import brought, and a
// region that goes is revoked first. Each peer that has it imported lets operations
// under way end, starts no more, and gives the loan back. Then the region is
// deregistered. A peer that does not give it back in time is disconnected; one
// that goes on to use the key is, too, by the adapter.
//
// # Order
//
// A queue pair executes in order, but for one thing: what comes after a read may
// overtake it. A write to bytes that a read under way may touch is fenced, and so is
// whatever tells the peer of something while a read is under way.
//
// # Memory
//
// Adapters reach registered memory only. Operations on memory of the provider's
// own regions go there directly; others by way of a ring of registered memory that
// each queue pair has, which costs a copy. Memory that is registered stays in place when
// the process starts another one: Go does so without a copy of its memory (vfork), and
// nothing is asked of libibverbs for it.
//
// When a connection ends, its queue pair is destroyed before anybody is told: an
// adapter may finish what it has begun after an error, and the buffers are the
// caller's then.
package verbs

// Name is the provider's name.
const Name = "verbs"
