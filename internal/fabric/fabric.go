// Package fabric is RDMA verbs cut down to what Redy needs: registered memory
// that peers reach by token, queue pairs with one-sided reads and writes, and
// completions that are polled.
//
// Providers: mem (goroutines of one process), shm (processes of one host, over
// shared memory, one-sided in truth), tcp (anywhere; the provider on the remote
// host carries the operations out), verbs (RDMA, under the build tag verbs); package
// transport opens them by name. [WithModel] wraps any of them in a network's latency
// and bandwidth, [WithFaults] in faults, for tests. Redy's protocol above is written
// once.
//
// A queue pair belongs to one goroutine, as a [github.com/redykv/redykv/device.Queue]
// does. Providers, listeners and regions are safe for concurrent use.
package fabric

import (
	"context"
	"errors"
)

// Errors of operations and connections, wrapped with what they concern.
var (
	// ErrQueueFull says that depth operations are under way: poll first.
	ErrQueueFull = errors.New("fabric: queue full")
	// ErrDisconnected says that the peer is gone. Everything under way
	// completes with it; what is asked for afterwards is refused with it.
	ErrDisconnected = errors.New("fabric: peer disconnected")
	// ErrBadToken says that no such region is registered at the peer.
	ErrBadToken = errors.New("fabric: unknown region token")
	// ErrOutOfBounds says that an operation reaches outside its region.
	ErrOutOfBounds = errors.New("fabric: access out of bounds")
	// ErrClosed says that the object was closed on this side.
	ErrClosed = errors.New("fabric: closed")
	// ErrRejected says that the listener's owner refused the connection.
	ErrRejected = errors.New("fabric: connection rejected")
	// ErrPrivate says that there is more private data than MaxPrivate.
	ErrPrivate = errors.New("fabric: too much private data")
)

// Token names one registration of one region. It is random, unguessable, and
// all that a peer needs to reach the region's bytes.
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
	// an empty one lets the provider choose. depth bounds what each accepted
	// queue pair may have under way.
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
	// Close revokes the token and frees the memory. Later accesses by peers end
	// with ErrBadToken; Bytes must no longer be used.
	Close() error
}

// Listener accepts queue pairs.
type Listener interface {
	// Accept returns the next connection request; nothing flows until it is
	// accepted.
	Accept(ctx context.Context) (Request, error)
	// Addr is where peers dial.
	Addr() string
	Close() error
}

// Request is a peer that wants to connect.
type Request interface {
	// Private is what the peer gave to Dial.
	Private() []byte
	// Accept makes the connection and sends private back.
	Accept(private []byte) (QueuePair, error)
	// Reject refuses it; Dial fails with reason in its error.
	Reject(reason string) error
}

// Remote is a peer's region as one queue pair knows it: the handle by which
// operations name it (verbs: remote address and rkey).
type Remote struct {
	Handle uint32
	Size   int64
}

// QueuePair is one connection: reliable and in order. Operations enqueued are
// executed at the peer in the order of their enqueueing. One that the peer
// refuses, for its token or its bounds, completes with an error and moves no
// bytes; the others go on. A peer that does not poll its immediates holds further
// ones back, about a thousand later, and what was enqueued behind them.
type QueuePair interface {
	// PeerPrivate is the private data that the peer sent.
	PeerPrivate() []byte
	// Import makes the peer's region reachable. It may take a round trip.
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
	// Submit starts everything enqueued: the doorbell.
	Submit() error
	// Poll moves completions into done and returns how many; never blocks.
	// Completions of this side's operations come in the order of enqueueing.
	Poll(done []Completion) int
	// Wait parks until Poll has something to return; it may return sooner. Once
	// the peer is gone and everything polled, it returns Err.
	Wait(ctx context.Context) error
	// Wake makes a Wait under way in another goroutine, or else the next one,
	// return. It and Err are the methods that are safe for concurrent use.
	Wake()
	// Err is ErrDisconnected or ErrClosed once that is so, else nil.
	Err() error
	// Close ends the connection; buffers are the caller's again when it
	// returns. What was under way completes with ErrClosed.
	Close() error
}

// Prefetcher is a QueuePair whose Submit does the work itself, and waits for memory.
// The owner of several gains by asking all of them first, and submitting then.
type Prefetcher interface {
	// Prefetch asks for the memory that the next operations enqueued will touch, as
	// far as it makes sense to. It has no other effect.
	Prefetch()
}

// Op says what a completion is the end of.
type Op uint8

const (
	OpRead  Op = iota // a Read of this side
	OpWrite           // a Write or WriteImm of this side
	OpRecv            // a WriteImm of the peer
)

// Completion is the end of one operation.
type Completion struct {
	Tag uint64
	N   int
	Err error
	Imm uint32 // of an OpRecv
	Op  Op
}
