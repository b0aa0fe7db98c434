package tcp

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// outbox is what waits to be written to a connection. Anybody appends under the
// lock and writes at once as much as the kernel takes; only the rest is left to
// a goroutine that waits until the kernel takes more. So nobody who appends ever
// blocks, and the usual case has no hop between goroutines.
//
// Large bodies are not copied into it but lent to it, until the next flush: they are
// written from where they lie, and only what the kernel does not take is copied.
//
// With TLS there are two: what is flushed here is sealed into the other one, whose
// lock is always the inner of the two, and of TLS's own.
type outbox struct {
	raw     syscall.RawConn
	drained func()    // called without the lock when the goroutine has caught up
	sealer  io.Writer // TLS: not nil, then nothing above is used here
	sealed  *outbox   // where it writes to

	mu      sync.Mutex
	buf     []byte
	sent    int    // of buf
	bodies  []body // that lie between the bytes of buf, in order
	first   int    // of bodies that is not written
	lent    int    // bytes of bodies that are not
	vectors []syscall.Iovec
	spare   []byte // a buffer for when the kernel is full
	stuck   bool   // it is, and the goroutine has the descriptor
	err     error  // nothing is written any more
	attempt func(fd uintptr) bool
	kick    chan struct{} // wakes the goroutine; closed when the connection is
}

// keepBuffer is the largest buffer kept when it is empty.
const keepBuffer = 4 << 20

func newOutbox(raw syscall.RawConn, drained func()) *outbox {
	o := &outbox{raw: raw, drained: drained, kick: make(chan struct{}, 1)}
	o.attempt = func(fd uintptr) bool { o.write(int(fd)); return true } // once: no closure per flush
	return o
}

// newSealingOutbox is an outbox in front of sealed, by way of sealer.
func newSealingOutbox(sealer io.Writer, sealed *outbox) *outbox {
	return &outbox{sealer: sealer, sealed: sealed}
}

// pending is how many bytes wait. With the lock held.
func (o *outbox) pending() int {
	n := len(o.buf) - o.sent + o.lent
	if o.sealed != nil {
		o.sealed.mu.Lock()
		n += o.sealed.pending()
		o.sealed.mu.Unlock()
	}
	return n
}

// flush writes what the kernel takes; after it nothing is lent. With the lock held.
func (o *outbox) flush() {
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

// write writes until the box is empty or the kernel is full. With the lock held.
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
			o.err = err // the reader of the connection learns of it too
		}
	}
	o.empty()
}

// empty forgets what was written, or cannot be.
func (o *outbox) empty() {
	if o.err != nil || cap(o.buf) > keepBuffer {
		o.buf = nil
	}
	o.buf, o.sent = o.buf[:0], 0
	o.giveBack()
}

// keep copies what is lent, and gives the room of what was written back once it is
// the larger part.
func (o *outbox) keep() {
	if o.lent > 0 {
		o.copyBodies()
	}
	if o.sent > len(o.buf)/2 {
		o.buf = o.buf[:copy(o.buf, o.buf[o.sent:])]
		o.sent = 0
	}
}

// run waits for the kernel on behalf of the others, until close.
func (o *outbox) run() {
	for range o.kick {
		// The descriptor's write lock is ours while stuck; flush keeps off it.
		err := o.raw.Write(func(fd uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.write(int(fd))
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

// close ends run, once the connection is closed. Nothing is flushed after.
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
}

var errOutboxClosed = errors.New("outbox closed")
