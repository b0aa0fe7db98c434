// Package device defines where a log keeps what memory cannot hold.
//
// A [Device] is one address space of bytes; a [Queue] is one goroutine's way to
// read and write it, many operations at a time. [Tiered] stacks devices, each
// smaller and faster than the next; [Memory], [Null] and [Faulty] are whole
// devices of their own, for caches, measurements and tests. The SSD lives in
// package ssdtier and the remote cache in package redytier; nothing that uses a
// Device can tell them apart.
//
// Caveats worth knowing:
//   - A Queue belongs to one goroutine. A Device is safe for all of them.
//   - A buffer handed to Read or Write belongs to the queue until its completion
//     is polled; for a write that is the Done or the Released event.
//   - A write is durable only once it is complete and Sync has returned.
package device

import (
	"context"
	"errors"
)

// Errors that a caller can act on. Devices wrap them with the address or the
// file that they concern.
var (
	// ErrQueueFull says that the queue has as many operations under way as its
	// depth allows: Submit, Poll, and try again.
	ErrQueueFull = errors.New("device: queue full")
	// ErrNotHeld says that the device does not hold the bytes asked for: they
	// were truncated, overwritten, lost or never written.
	ErrNotHeld = errors.New("device: address not held")
	// ErrCorrupt says that the device holds other bytes than were written, or
	// has lost some that it should hold.
	ErrCorrupt = errors.New("device: stored bytes are damaged")
	// ErrNoSpace says that there was no space for what was to be stored: it may be tried
	// again once there is.
	ErrNoSpace = errors.New("device: no space")
	// ErrClosed says that the device or the queue was closed.
	ErrClosed = errors.New("device: closed")
	// ErrNoMeta says that no metadata was stored under that name.
	ErrNoMeta = errors.New("device: no such metadata")
)

// Device is a log's storage: an address space that grows at the end and is cut
// off at the beginning. All methods are safe for concurrent use.
type Device interface {
	// Start tells the device where the log ends, once, before the first read or
	// write. A device that survives a restart forgets what it may hold at or
	// above tail; one that does not starts empty there, so that Begin is tail
	// (of a [Refiller], lower). A tier that has failed is started again, with
	// queues open that have no write under way; and before anything was written Start
	// may be called again, with a lower tail, see [Prepare].
	Start(tail int64) error
	// NewQueue returns a queue that holds up to depth operations under way.
	NewQueue(depth int) (Queue, error)
	// Alignment is the unit of writes in bytes, a power of two: a write's
	// address, its length and its buffer are multiples of it. 1 for devices
	// that write any bytes. Reads need no alignment. A log that ends inside such
	// a unit writes zeros after its end, and the unit again, with the same bytes
	// up to there, when it goes on: a device may tell damage by that.
	Alignment() int
	// Begin is the lowest address that the device answers for.
	Begin() int64
	// Truncate forgets what lies below begin and gives its space back.
	Truncate(begin int64) error
	// Sync makes every write completed before the call durable.
	Sync() error
	// WriteMeta stores a small named object durably and atomically: after a
	// crash it holds the old bytes or the new ones. Its name passes CheckName.
	// Volatile devices return errors.ErrUnsupported.
	WriteMeta(name string, data []byte) error
	// ReadMeta returns the object of that name, or ErrNoMeta.
	ReadMeta(name string) ([]byte, error)
	// Objects are large ones, beside the log.
	Objects
	// Close releases the device. Its queues must have been closed before.
	Close() error
}

// Queue is one goroutine's reads and writes on a device. Operations start at
// Submit at the latest and complete in any order; each completes exactly once
// (a write on several tiers with up to two events, see [Event]). Nothing is
// allocated per operation.
type Queue interface {
	// Read fills dst from addr. ErrQueueFull: poll first; ErrClosed: never
	// again. What else is wrong, the completion tells; of what is not held, Read may
	// do so at once. A completion with a nil Err has filled dst whole.
	Read(dst []byte, addr int64, tag uint64) error
	// Write stores src at addr.
	Write(src []byte, addr int64, tag uint64) error
	// Submit starts what Read and Write have enqueued: the doorbell. After an
	// error the operations complete nevertheless, with errors of their own.
	Submit() error
	// Poll moves completions into done and returns how many. It never blocks. It may leave
	// some for the next call though done has room.
	Poll(done []Completion) int
	// Wait parks until Poll has something to return, or ctx ends. It returns
	// at once where nothing is under way.
	Wait(ctx context.Context) error
	// Close waits for what is under way and releases the queue. After an error something
	// may be under way for ever: the device sees to it that its buffers are not reused.
	Close() error
}

// Completion is the end of one operation, or of one stage of a write.
type Completion struct {
	Tag   uint64 // as given to Read or Write
	N     int    // bytes read or written
	Err   error  // nil, or why the operation failed
	Event Event  // which stage this is
	Tier  uint8  // the tier that answered a read; 0 on a plain device
}

// Event is the stage of an operation that a completion tells of.
//
//	Read:   Done
//	Write:  Done                   committed and released at once
//	        Committed → Released   on tiers beyond the commit point
type Event uint8

const (
	// Done is the one and only completion of its operation.
	Done Event = iota
	// Committed says that a write has reached the commit point. Its buffer
	// still belongs to the queue; Released follows.
	Committed
	// Released says that every tier is through with a write that was Committed
	// before. Err tells of the tiers beyond the commit point.
	Released
)
