// Package device defines the devices that store the part of a log that is not in memory.
//
// A [Device] is one address space of bytes; a [Queue] reads and writes it for one
// goroutine, many operations at a time. [Tiered] stacks devices, each smaller and faster
// than the next. [Memory], [Null] and [Faulty] are devices for caches, measurements and
// tests. Package ssdtier implements the SSD device, package redytier the remote-memory
// device; a user of Device does not depend on either. Other devices are sub-packages. Package
// devicetest has the tests that each device passes.
//
// A store's read of a cold record begins in kv/pending.go, is routed to a tier by
// tiered_read.go, and ends in the tier's queue: ssdtier/queue.go and ring.go, or
// redytier/device_queue.go.
//
// Caveats:
//   - A Queue belongs to one goroutine. A Device is safe for all of them.
//   - A buffer handed to Read or Write belongs to the queue until its completion
//     is polled; a write's buffer is free after its Done or Released event.
//   - A write is durable only once it is complete and Sync has returned.
package device

import (
	"context"
	"errors"
)

// Errors that a caller can act on. Devices wrap them with the address or the
// file that they concern.
var (
	// ErrQueueFull means that the queue has as many operations pending as its depth
	// allows: Submit, Poll, and try again.
	ErrQueueFull = errors.New("device: queue full")
	// ErrNotHeld means that the device does not hold the bytes asked for: they
	// were truncated, overwritten, lost or never written.
	ErrNotHeld = errors.New("device: address not held")
	// ErrCorrupt means that the device holds other bytes than were written, or
	// has lost some that it should hold.
	ErrCorrupt = errors.New("device: stored bytes are damaged")
	// ErrNoSpace means that there was no space to store something. The operation may be
	// tried again once there is.
	ErrNoSpace = errors.New("device: no space")
	// ErrClosed means that the device or the queue was closed.
	ErrClosed = errors.New("device: closed")
	// ErrNoMeta means that no metadata was stored under that name.
	ErrNoMeta = errors.New("device: no such metadata")
)

// Device is a log's storage: an address space that grows at the end and is truncated at
// the beginning. All methods are safe for concurrent use.
type Device interface {
	// Start tells the device where the log ends, before the first read or write. A
	// persistent device forgets what it holds at or above tail; a volatile one starts
	// empty there, so that Begin is tail (of a [Refiller], lower). Start is called again
	// on a tier that has failed, whose queues are open and have no pending write; and,
	// before anything was written, with a lower tail, see [Prepare].
	Start(tail int64) error
	// NewQueue returns a queue of up to depth pending operations.
	NewQueue(depth int) (Queue, error)
	// Alignment is the unit of writes in bytes, a power of two: a write's
	// address, its length and its buffer are multiples of it. 1 for devices
	// that write any bytes. Reads need no alignment. A log that ends inside a unit writes
	// zeros after its end, and writes the unit again, with the same bytes up to there,
	// when it grows: a device may detect damage by that.
	Alignment() int
	// Begin is the lowest address that the device answers for.
	Begin() int64
	// Truncate forgets what lies below begin and releases its space. A log that cannot be written
	// may go on at a begin above all that was written, a multiple of Alignment; no write is pending
	// then. It works without free space.
	Truncate(begin int64) error
	// Sync makes every write completed before the call durable.
	Sync() error
	// WriteMeta stores a small named object durably and atomically: after a
	// crash it holds the old bytes or the new ones. Its name passes CheckName.
	// A log stores some, where it ends, before its first write: a device may take a log without for a
	// damaged one. Volatile devices return errors.ErrUnsupported.
	WriteMeta(name string, data []byte) error
	// ReadMeta returns the object of that name, or ErrNoMeta.
	ReadMeta(name string) ([]byte, error)
	// Objects are large named byte strings beside the log.
	Objects
	// Close releases the device. Its queues must have been closed before.
	Close() error
}

// Committer is a Device on which a small commit costs less than Sync and WriteMeta.
type Committer interface {
	// Commit is Sync followed by WriteMeta: it makes every write completed before the call
	// durable, and stores a small named object. After a crash that has the new object, those
	// writes are there. After an error it may have either object.
	Commit(name string, data []byte) error
	// CommitWith is Commit for a log of which src, the end from addr on, is still being written:
	// src is durable afterwards, too. The log below addr has been written. Address and length are
	// multiples of Alignment, and zeros follow the log's end. Commits are in the order of their
	// logs' ends. CommitWith returns false if the device does not take it: then a Commit after
	// the write has ended does the same. Until src is written, Sync and WriteMeta may fail with
	// ErrTransient.
	CommitWith(src []byte, addr int64, name string, data []byte) (done bool, err error)
}

// Commit is [Committer].Commit, for any device.
func Commit(d Device, name string, data []byte) error {
	if c, ok := d.(Committer); ok {
		return c.Commit(name, data)
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return d.WriteMeta(name, data)
}

// Queue is one goroutine's reads and writes on a device. Operations start at
// Submit at the latest and complete in any order. Each completes once; a write on several
// tiers has up to two events, see [Event]. Nothing is allocated per operation.
type Queue interface {
	// Read fills dst from addr. It returns ErrQueueFull or ErrClosed, and may return
	// ErrNotHeld; every other error is in the completion. A completion with a nil Err has
	// filled dst whole.
	Read(dst []byte, addr int64, tag uint64) error
	// Write stores src at addr.
	Write(src []byte, addr int64, tag uint64) error
	// Submit starts the operations that Read and Write have enqueued. After an error they
	// complete nevertheless, each with an error.
	Submit() error
	// Poll moves completions into done and returns their number. It does not block, and
	// may leave some for the next call although done has room.
	Poll(done []Completion) int
	// Wait parks until Poll has something to return, or ctx ends. It returns at once if
	// nothing is pending.
	Wait(ctx context.Context) error
	// Close waits for pending operations and releases the queue. After an error some may
	// stay pending for ever: the device makes sure that their buffers are not reused.
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

// Event is the stage of an operation that a completion reports.
//
//	Read:   Done
//	Write:  Done                   committed and released at once
//	        Committed → Released   on tiers beyond the commit point
type Event uint8

const (
	// Done is the one and only completion of its operation.
	Done Event = iota
	// Committed: a write has reached the commit point. Its buffer still belongs to the
	// queue; Released follows.
	Committed
	// Released: every tier has ended a write that was Committed before. Err is the error
	// of the tiers beyond the commit point.
	Released
)
