// Package fabric defines an interface for the part of RDMA verbs that Redy needs: registered
// memory that peers reach by token, queue pairs with one-sided reads and writes, and
// completions that are polled.
//
// Providers: mem (goroutines of one process), shm (processes of one host, over
// shared memory, truly one-sided), tcp (the provider on the remote host executes the
// operations), verbs (RDMA, under the build tag verbs); package transport opens them by
// name. [WithModel] adds a network's latency and bandwidth to any of them, [WithFaults]
// adds faults, for tests. Redy's protocol is the same over all providers.
//
// A queue pair belongs to one goroutine, as a [github.com/redykv/redykv/device.Queue]
// does; another one may import regions for it. Providers, listeners and regions are safe for
// concurrent use.
package fabric

import (
	"context"
	"errors"
)

// Errors of operations and connections; callers get them wrapped.
var (
	// ErrQueueFull: depth operations are pending; poll first.
	ErrQueueFull = errors.New("fabric: queue full")
	// ErrDisconnected: the connection to the peer has ended. Pending operations
	// complete with it; later ones return it.
	ErrDisconnected = errors.New("fabric: peer disconnected")
	// ErrBadToken: the peer has no region with this token.
	ErrBadToken = errors.New("fabric: unknown region token")
	// ErrExhausted: the peer has the region, and lacks resources to make it accessible.
	ErrExhausted = errors.New("fabric: the peer lacks resources")
	// ErrOutOfBounds: an operation reaches outside its region.
	ErrOutOfBounds = errors.New("fabric: access out of bounds")
	// ErrClosed: the object was closed on this side.
	ErrClosed = errors.New("fabric: closed")
	// ErrRejected: the listener's owner refused the connection.
	ErrRejected = errors.New("fabric: connection rejected")
	// ErrPrivate: the private data is longer than MaxPrivate.
	ErrPrivate = errors.New("fabric: too much private data")
)

// Token names one registration of one region. It is random, and sufficient for a peer to reach the
// region's bytes, unless its connection is limited (Request.Limit).
type Token [16]byte

// MaxPrivate is the most private data in bytes that either side may send when
// connecting (as in rdma_cm, where it is 56 to 196).
const MaxPrivate = 56

// Provider is one transport.
type Provider interface {
	// Name is the transport's name as reports print it: mem, shm, tcp, verbs.
	Name() string
	// Alloc returns size bytes of zeroed memory, registered for the peers of
	// this provider's queue pairs.
	Alloc(size int) (Region, error)
	// Listen accepts connections at addr; its form is the provider's own, and
	// an empty one lets the provider choose. depth is the number of operations
	// that each accepted queue pair may have pending.
	Listen(addr string, depth int) (Listener, error)
	// Dial connects to a listener and sends it private.
	Dial(ctx context.Context, addr string, private []byte, depth int) (QueuePair, error)
	// Close closes listeners, queue pairs and regions still open.
	Close() error
}

// Region is registered memory.
type Region interface {
	Bytes() []byte
	Token() Token
	// Discard makes n bytes at offset read as zeros, and gives their physical memory back to
	// the system where it can. Peers must not write these bytes meanwhile.
	Discard(offset, n int64) error
	// Fence takes the memory from the peers: it returns a region with the same bytes and another
	// token, and closes this one. No access by a peer that knew this one changes the bytes
	// afterwards, over whichever connection. The owner accesses neither meanwhile. After an error
	// this region is as before, or closed with its provider. Where peers access the memory
	// themselves, Fence may take the time and, until it returns, the memory of a copy.
	Fence() (Region, error)
	// Close revokes the token and frees the memory. Later accesses by peers end
	// with ErrBadToken; Bytes must no longer be used.
	Close() error
}

// Preparing is a Region whose memory is populated in the background after it is allocated. An
// access before that waits until the page that it accesses is populated.
type Preparing interface {
	Region
	// Ready returns when the memory is populated, as far as it is to be, or ctx ends.
	Ready(ctx context.Context)
}

// Listener accepts queue pairs.
type Listener interface {
	// Accept returns the next connection request. No data flows before the
	// request is accepted.
	Accept(ctx context.Context) (Request, error)
	// Addr is where peers dial.
	Addr() string
	Close() error
}

// Rights are what a peer may do to the regions of the side that has accepted it.
type Rights uint8

const (
	ReadWrite Rights = iota
	// ReadOnly: a peer's write of bytes changes none. It ends with an error, and may end the
	// connection. Over shm, where a peer is of the same user, that holds for mappings of what
	// is lent: such a process has other ways.
	ReadOnly
)

// Request is a peer that wants to connect.
type Request interface {
	// Private is the data that the peer passed to Dial.
	Private() []byte
	// Limit has Accept's queue pair lend the peer only regions for whose tokens lends returns true when
	// they are imported; others do not exist for the peer. Any goroutine may call lends. Without Limit
	// all regions of this side are lent. It is called before Accept.
	Limit(lends func(Token) bool)
	// Accept establishes the connection and sends private to the peer, which has these rights to
	// the regions of this side.
	Accept(private []byte, rights Rights) (QueuePair, error)
	// Reject refuses the connection; Dial fails with reason in its error. While Accept waits for
	// the peer in another goroutine, it ends that instead.
	Reject(reason string) error
}

// Remote is the handle by which one queue pair's operations name a peer's region
// (verbs: remote address and rkey).
type Remote struct {
	Handle uint32
	Size   int64
}

// QueuePair is one connection: reliable and in order. Operations are executed
// at the peer in the order in which they were enqueued. An operation that the peer
// refuses, for its token or bounds, completes with an error and moves no bytes; later
// ones continue. If the peer does not poll its immediates, about a thousand are
// buffered; further ones wait, and so do the operations behind them.
type QueuePair interface {
	// PeerPrivate is the private data that the peer sent.
	PeerPrivate() []byte
	// Import makes the peer's region reachable. It may take a round trip, and the time to
	// register the region. Any goroutine may call it, one at a time, while the owner calls
	// other methods; Close ends it.
	Import(ctx context.Context, token Token) (Remote, error)
	// Release forgets an imported region.
	Release(r Remote)
	// Read fills dst from the region r at offset.
	Read(dst []byte, r Remote, offset int64, tag uint64) error
	// Write stores src in the region r at offset. src may be reused once the
	// completion is polled.
	Write(src []byte, r Remote, offset int64, tag uint64) error
	// WriteImm is Write that also tells the peer: its queue pair gets a
	// completion with Op Recv and this imm, after the bytes are in place.
	WriteImm(src []byte, r Remote, offset int64, imm uint32, tag uint64) error
	// Submit starts all enqueued operations: the doorbell.
	Submit() error
	// Poll moves completions into done and returns how many. It never blocks.
	// Completions of this side's operations come in the order of enqueueing.
	Poll(done []Completion) int
	// Wait blocks until Poll has a completion to return; it may return sooner. When
	// the connection has ended and everything is polled, it returns Err.
	Wait(ctx context.Context) error
	// Wake makes a Wait that blocks in another goroutine, or else the next one,
	// return. Wake and Err are safe for concurrent use; the other methods but Import are not.
	Wake()
	// Err returns ErrDisconnected or ErrClosed after the connection has ended, else nil.
	Err() error
	// Close ends the connection. When it returns, buffers belong to the caller
	// again. Pending operations complete with ErrClosed.
	Close() error
}

// Prefetcher is a QueuePair whose Submit copies bytes itself and so waits for memory.
// An owner of several calls Prefetch on all of them before it submits.
type Prefetcher interface {
	// Prefetch prefetches memory that the enqueued operations will touch. It has no
	// other effect.
	Prefetch()
}

// HoleFinder is a QueuePair that knows which bytes of a peer's region have memory. Others have
// never been written and are zeros; reading them may give them memory.
type HoleFinder interface {
	// NextData returns the begin of the first range at or behind offset that may hold other
	// bytes than zeros; end is in the range, or its end. Without such a range both are the
	// region's size. The range may be outdated when NextData returns, unless nobody writes the
	// region. It may ask the peer, and then waits until ctx ends.
	NextData(ctx context.Context, r Remote, offset int64) (begin, end int64, err error)
}

// Op is the kind of operation that a completion ends.
type Op uint8

const (
	OpRead  Op = iota // a Read by this side
	OpWrite           // a Write or WriteImm by this side
	OpRecv            // a WriteImm by the peer
)

// Completion is the end of one operation.
type Completion struct {
	Tag uint64
	N   int
	Err error
	Imm uint32 // of an OpRecv
	Op  Op
}
