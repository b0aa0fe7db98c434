package tcp

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// readBuffer is the size of one read in bytes: at least one frame.
	readBuffer = 256 << 10
	// sealedBuffer is the size of a first read with TLS: a batch of small requests.
	sealedBuffer = 4 << 10
)

// readBuffers holds buffers of readBuffer bytes that no connection uses.
var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// input buffers a connection's incoming bytes. It has a buffer from the arrival of bytes until
// all of them are handled, so that an idle connection has none. With TLS, which may hold bytes
// itself, a connection keeps a small buffer to wait with. It belongs to the reader's goroutine.
type input struct {
	conn       *stream
	raw        syscall.RawConn
	buf        *[readBuffer]byte // nil: none
	start, end int               // the bytes of buf that are not handled
	attempt    func(fd uintptr) bool
	err        error  // of the last attempt
	sealed     []byte // the small buffer; with TLS only
	first      []byte // bytes of sealed that are not handled; buf is nil then
}

func newInput(conn *stream, raw syscall.RawConn) *input {
	in := &input{conn: conn, raw: raw}
	in.attempt = in.read // once: no closure per read
	if conn.tls != nil {
		in.sealed = make([]byte, sealedBuffer)
	}
	return in
}

// bytes returns what has arrived and is not handled.
func (in *input) bytes() []byte {
	if in.buf == nil {
		return in.first
	}
	return in.buf[in.start:in.end]
}

// handled drops the first n bytes.
func (in *input) handled(n int) {
	if in.buf == nil {
		in.first = in.first[n:]
		return
	}
	in.start += n
	if in.start == in.end {
		in.start, in.end = 0, 0
	} else if readBuffer-in.start < maxFrame {
		in.end = copy(in.buf[:], in.buf[in.start:in.end])
		in.start = 0
	}
}

// fill waits for more bytes.
func (in *input) fill() error {
	if in.sealed != nil {
		return in.fillSealed()
	}
	if err := in.raw.Read(in.attempt); err != nil {
		return err
	}
	return in.err
}

// read reads once and reports whether the kernel had bytes, or an error.
func (in *input) read(fd uintptr) bool {
	in.take()
	for {
		n, err := unix.Read(int(fd), in.buf[in.end:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			in.giveBack()
			return false
		case err == nil && n == 0:
			err = io.EOF
		}
		in.end += max(n, 0)
		in.err = err
		return true
	}
}

func (in *input) fillSealed() error {
	in.giveBack()
	if in.buf == nil && len(in.first) == 0 {
		n, err := in.conn.Read(in.sealed)
		if in.first = in.sealed[:n]; n > 0 {
			return nil
		}
		return err
	}
	in.take()
	n, err := in.conn.Read(in.buf[in.end:])
	if in.end += n; n > 0 {
		return nil
	}
	return err
}

// take takes a buffer if there is none.
func (in *input) take() {
	if in.buf == nil {
		in.buf = readBuffers.Get().(*[readBuffer]byte)
		in.start, in.end = 0, copy(in.buf[:], in.first)
		in.first = nil
	}
}

// giveBack gives an empty buffer back.
func (in *input) giveBack() {
	if in.buf != nil && in.start == in.end {
		readBuffers.Put(in.buf)
		in.buf = nil
	}
}

// close drops what is not handled.
func (in *input) close() {
	in.first, in.start, in.end = nil, 0, 0
	in.giveBack()
}
