package resp

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
)

// Sizes in bytes of a connection's input buffer: a new one, the largest that it
// keeps while it waits for its client, and the largest that it takes only to
// have more commands in a batch.
const (
	newBuffer     = 4 << 10
	restingBuffer = 16 << 10
	largeBatch    = 64 << 10
)

// errTooMuchInput says that Options.MaxBuffers are taken.
var errTooMuchInput = errors.New("too many large requests at once")

// budget counts bytes that many connections share.
type budget struct {
	used atomic.Int64
	most int64
}

// take says whether n more bytes were to be had.
func (b *budget) take(n int64) bool { return b.takeBelow(n, b.most) }

// takeBelow is take for those who may not bring the sum above most.
func (b *budget) takeBelow(n, most int64) bool {
	for {
		used := b.used.Load()
		if used+n > most {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// low says whether more than half is taken.
func (b *budget) low() bool { return b.used.Load() > b.most/2 }

// input is what a connection has received: buf[start:end] waits to be carried
// out. Everything a request refers to lies there until the next fill.
type input struct {
	conn       net.Conn
	parser     parser
	buf        []byte
	start, end int
	full       bool  // the last read left no room, or was of what was read ahead: more is to come
	last       int   // bytes that it brought
	charged    int64 // bytes that large has given
	large      *budget
	ahead      [][]byte // what follows, where it was read ahead; of large, too
}

func newInput(conn net.Conn, opts *Options, large *budget) input {
	return input{
		conn: conn, large: large,
		parser: parser{maxBulk: opts.MaxBulk, maxRequest: opts.MaxRequest},
	}
}

// next is the next request that is there whole.
func (in *input) next() (r request, ok bool, err error) {
	data := in.buf[in.start:in.end]
	size, err := in.parser.next(data)
	if err != nil || size == 0 {
		return request{}, false, err
	}
	in.start += size
	return request{data: data[:size], args: in.parser.args}, true, nil
}

// again is the request that lies at a place where next found one since the last
// fill.
func (in *input) again(at int) (r request, ok bool) {
	p := parser{maxBulk: in.parser.maxBulk, maxRequest: in.parser.maxRequest}
	size, err := p.next(in.buf[at:in.end])
	if err != nil || size == 0 || len(p.args) == 0 {
		return request{}, false
	}
	return request{data: in.buf[at : at+size], args: p.args}, true
}

// empty says whether nothing waits, not even a part of a request.
func (in *input) empty() bool { return in.start == in.end && len(in.ahead) == 0 }

// fill waits for the client and reads what has come. Requests read before are
// gone afterwards.
func (in *input) fill() error {
	if err := in.makeRoom(); err != nil {
		return err
	}
	ahead := len(in.ahead) > 0
	n, err := in.read(in.buf[in.end:])
	in.last = n
	in.end += n
	if n > 0 {
		in.full = ahead || in.end == len(in.buf)
		return nil // an error comes again
	}
	return err
}

func (in *input) makeRoom() error {
	waiting := in.end - in.start
	if args := in.parser.bytes(); args > restingBuffer && waiting > 0 {
		if !in.charge(int64(len(in.buf) + args - restingBuffer)) {
			return errTooMuchInput
		}
	}
	if in.full && len(in.buf) < largeBatch && !in.large.low() {
		// A client that pipelines more than the buffer holds gets larger batches,
		// while there is memory for that.
		if err := in.resize(2 * len(in.buf)); !errors.Is(err, errTooMuchInput) {
			return err
		}
	}
	switch {
	case in.buf == nil:
		return in.resize(newBuffer)
	case waiting == 0:
		in.start, in.end = 0, 0
	case in.end < len(in.buf):
	case waiting <= len(in.buf)/2:
		in.start, in.end = 0, copy(in.buf, in.buf[in.start:in.end])
	default:
		return in.resize(2 * len(in.buf))
	}
	return nil
}

// resize moves what waits into another buffer, which holds it.
func (in *input) resize(size int) error {
	if !in.charge(int64(size + in.parser.bytes() - restingBuffer)) {
		return errTooMuchInput
	}
	buf := make([]byte, size)
	in.start, in.end = 0, copy(buf, in.buf[in.start:in.end])
	in.buf = buf
	return nil
}

// charge has the budget give so many bytes in all, or takes nothing.
func (in *input) charge(bytes int64) bool {
	bytes = max(bytes, 0)
	most := in.large.most
	if in.parser.stranger {
		most /= 4 // the rest is for those who have a password
	}
	if more := bytes - in.charged; more <= 0 {
		in.large.give(-more)
	} else if !in.large.takeBelow(more, most) {
		return false
	}
	in.charged = bytes
	return true
}

// release gives back what an idle connection need not hold.
func (in *input) release() {
	in.buf, in.start, in.end, in.full = nil, 0, 0, false
	if in.parser.bytes() > restingBuffer {
		in.parser.args = nil
	}
	in.dropAhead(len(in.ahead))
	in.charge(0)
}

// shrink gives back what a connection that waits for its client need not hold. What
// has arrived of a command stays.
func (in *input) shrink() {
	waiting := in.end - in.start
	if waiting == 0 {
		in.release()
		return
	}
	size := newBuffer
	for size <= waiting {
		size *= 2
	}
	if size < len(in.buf) && in.resize(size) == nil {
		in.full = false
	}
}

// isTimeout says whether a deadline ended a read.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
