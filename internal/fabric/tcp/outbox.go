package tcp

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// outbox buffers bytes that wait to be written to a connection. A goroutine that appends,
// under the lock, writes at once as much as the kernel accepts; the rest is left to a
// goroutine that waits for the kernel. So appending never blocks, and usually no other
// goroutine is involved.
//
// Large bodies are lent to the outbox until the next flush instead of copied: they are written
// in place, and only what the kernel does not accept is copied.
//
// With TLS there are two: flushed bytes are sealed into the second one. Its lock is acquired
// last, after the first one's and TLS's own.
type outbox struct {
	raw     syscall.RawConn
	drained func()        // called without the lock when everything is written
	waiting *atomic.Int64 // bytes that wait in outboxes of connections that were accepted; nil: this is none
	sealer  io.Writer     // TLS, if not nil
	sealed  *outbox       // the outbox that sealer writes to

	mu      sync.Mutex
	buf     []byte
	sent    int    // bytes of buf that are written
	bodies  []body // lent bodies between the bytes of buf, in order
	first   int    // index of the first body that is not written
	lent    int    // bytes of bodies that are not written
	vectors []syscall.Iovec
	spare   []byte // a second buffer, for when the kernel is full
	stuck   bool   // the kernel is full, and the goroutine waits for the descriptor
	counted int    // bytes that are part of waiting
	err     error  // why nothing is written any more
	attempt func(fd uintptr) bool
	kick    chan struct{} // wakes the goroutine; closed with the connection
}

// keepBuffer is the largest empty buffer that is kept.
const keepBuffer = 4 << 20

func newOutbox(raw syscall.RawConn, waiting *atomic.Int64, drained func()) *outbox {
	o := &outbox{raw: raw, waiting: waiting, drained: drained, kick: make(chan struct{}, 1)}
	o.attempt = func(fd uintptr) bool { o.write(int(fd)); return true } // once: no closure per flush
	return o
}

// newSealingOutbox returns an outbox that writes to sealed through sealer.
func newSealingOutbox(sealer io.Writer, sealed *outbox) *outbox {
	return &outbox{sealer: sealer, sealed: sealed}
}

// pending returns the number of bytes that wait. The caller holds the lock.
func (o *outbox) pending() int {
	n := len(o.buf) - o.sent + o.lent
	if o.sealed != nil {
		o.sealed.mu.Lock()
		n += o.sealed.pending()
		o.sealed.mu.Unlock()
	}
	return n
}

// count keeps waiting true. The caller holds the lock.
func (o *outbox) count() {
	if o.waiting == nil {
		return
	}
	if n := o.pending(); n != o.counted {
		o.waiting.Add(int64(n - o.counted))
		o.counted = n
	}
}

// flush writes what the kernel accepts; afterwards no body is lent. The caller holds the lock.
func (o *outbox) flush() {
	defer o.count()
	switch {
	case o.stuck || len(o.buf) == o.sent: // no body without a header
		return
	case o.err != nil:
	case o.sealer != nil:
		_, o.err = o.sealer.Write(o.buf)
	default:
		if err := o.raw.Write(o.attempt); err != nil && o.err == nil {
			o.err = err
		}
		if o.pending() > 0 && o.err == nil {
			o.stuck = true
			select {
			case o.kick <- struct{}{}:
			default:
			}
			return
		}
	}
	o.empty()
}

// write writes until the outbox is empty or the kernel is full. The caller holds the lock.
func (o *outbox) write(fd int) {
	for o.pending() > 0 && o.err == nil {
		n, err := o.writeSome(fd)
		if n > 0 {
			o.advance(n)
		}
		switch {
		case err == nil || errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			o.keep()
			return
		default:
			o.err = err // the connection's reader gets the error too
		}
	}
	o.empty()
}

// empty drops all bytes: they are written, or cannot be.
func (o *outbox) empty() {
	if o.err != nil || cap(o.buf) > keepBuffer {
		o.buf = nil
	}
	o.buf, o.sent = o.buf[:0], 0
	o.giveBack()
}

// keepIdle is the largest empty buffer in bytes that an idle connection keeps.
const keepIdle = 4 << 10

// shrink gives large buffers of an idle connection back.
func (o *outbox) shrink() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.buf) == 0 && cap(o.buf) > keepIdle {
		o.buf = nil
	}
	if o.spare = o.spare[:0]; cap(o.spare) > keepIdle {
		o.spare = nil
	}
	if o.sealed != nil {
		o.sealed.shrink()
	}
}

// keep copies lent bodies, and reclaims the room of written bytes when they are the larger
// part.
func (o *outbox) keep() {
	if o.lent > 0 {
		o.copyBodies()
	}
	if o.sent > len(o.buf)/2 {
		o.buf = o.buf[:copy(o.buf, o.buf[o.sent:])]
		o.sent = 0
	}
}

// run waits for the kernel, until close.
func (o *outbox) run() {
	for range o.kick {
		// While stuck, this goroutine has the descriptor's write lock; flush does not write.
		err := o.raw.Write(func(fd uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.write(int(fd))
			o.count()
			o.stuck = o.pending() > 0
			return !o.stuck
		})
		if err != nil {
			o.mu.Lock()
			o.err, o.stuck = err, false
			o.mu.Unlock()
		}
		o.drained()
	}
}

// close ends run. The connection is closed, and flush is not called any more.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, errOutboxClosed) {
		return
	}
	o.err = errOutboxClosed
	if o.sealed != nil {
		o.sealed.close()
	} else {
		close(o.kick)
	}
	if o.waiting != nil {
		o.waiting.Add(-int64(o.counted))
		o.counted = 0
	}
}

var errOutboxClosed = errors.New("outbox closed")
