package ssdtier

import "github.com/redykv/redykv/device"

// request is one read or write of whole blocks. The ring or the pool owns it while it is
// pending.
type request struct {
	number uint32 // of its operation
	write  bool
	buf    []byte
	addr   int64
	need   int   // of a read: required bytes of buf; the file may end after them
	err    error // the result

	segment *segment // and offset, while the request is on the ring and not settled
	off     int64
	res     int // result of the ring
}

// run carries the request out, one segment after another, on a goroutine of the pool.
func (r *request) run(d *Device, closed bool) {
	if closed {
		r.err = device.ErrClosed
	}
	size := d.opts.SegmentSize
	for done := 0; done < len(r.buf) && r.err == nil; {
		addr := r.addr + int64(done)
		n := int(min(int64(len(r.buf)-done), size-addr%size))
		piece := r.buf[done : done+n]
		if r.write {
			r.err = d.writeAt(piece, addr)
		} else {
			r.err = d.readAt(piece, addr, min(n, r.need-done))
		}
		done += n
	}
}
