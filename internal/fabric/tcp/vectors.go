package tcp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// lendFrom is the smallest body that is lent. Copying a smaller one costs as much as its
	// entry in a vector.
	lendFrom = 8 << 10
	// maxVectors is the most pieces of one write.
	maxVectors = 128
)

// body is lent bytes that precede byte at of the buffer.
type body struct {
	at    int
	bytes []byte
}

// append adds a frame's body after its header. The body must not change until the next flush.
// The caller holds the lock.
func (o *outbox) append(b []byte) {
	if len(b) < lendFrom || o.stuck || o.sealer != nil {
		o.buf = append(o.buf, b...)
		return
	}
	o.bodies = append(o.bodies, body{at: len(o.buf), bytes: b})
	o.lent += len(b)
}

// writeSome makes one write of the next bytes.
func (o *outbox) writeSome(fd int) (int, error) {
	if o.lent == 0 {
		return unix.Write(fd, o.buf[o.sent:])
	}
	v, at := o.vectors[:0], o.sent
	for _, x := range o.bodies[o.first:] {
		if len(v) > maxVectors-2 {
			break
		}
		v = appendVector(v, o.buf[at:x.at])
		v = appendVector(v, x.bytes)
		at = x.at
	}
	if len(v) <= maxVectors-1 {
		v = appendVector(v, o.buf[at:])
	}
	o.vectors = v
	// vectors keeps the bytes alive until the call returns.
	n, _, errno := syscall.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func appendVector(v []syscall.Iovec, b []byte) []syscall.Iovec {
	if len(b) == 0 {
		return v
	}
	x := syscall.Iovec{Base: &b[0]}
	x.SetLen(len(b))
	return append(v, x)
}

// advance marks the next n bytes as written.
func (o *outbox) advance(n int) {
	for n > 0 {
		to := len(o.buf)
		if o.lent > 0 {
			x := &o.bodies[o.first]
			if x.at == o.sent {
				k := min(n, len(x.bytes))
				x.bytes = x.bytes[k:]
				o.lent -= k
				n -= k
				if len(x.bytes) == 0 {
					o.first++
				}
				continue
			}
			to = x.at
		}
		k := min(n, to-o.sent)
		o.sent += k
		n -= k
	}
}

// copyBodies copies lent bodies that are not written.
func (o *outbox) copyBodies() {
	all := o.spare[:0]
	for _, x := range o.bodies[o.first:] {
		all = append(all, o.buf[o.sent:x.at]...)
		all = append(all, x.bytes...)
		o.sent = x.at
	}
	all = append(all, o.buf[o.sent:]...)
	o.buf, o.spare, o.sent = all, o.buf, 0
	o.giveBack()
}

// giveBack drops the bodies.
func (o *outbox) giveBack() {
	clear(o.bodies)
	clear(o.vectors)
	o.bodies, o.vectors, o.first, o.lent = o.bodies[:0], o.vectors[:0], 0, 0
}
