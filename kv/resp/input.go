package resp

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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

// A client may send a long pipeline before it reads the first reply. When the replies
// fill all buffers between, it waits for the server to read, and the server for the
// client. So while a write waits, what the client sends is read ahead, as far as the
// budget for requests goes: requests take less memory than their replies would.

// A write that takes longer than aheadAfter has the connection read ahead, in pieces of
// aheadChunk bytes. Where the budget has no room, it is asked again every aheadAgain:
// other clients give room back.
const (
	aheadAfter = 10 * time.Millisecond
	aheadAgain = 20 * time.Millisecond
	aheadChunk = 64 << 10
)

// readAhead reads a connection while a write to it waits. While it reads, its own
// goroutine owns the connection's input; endWrite waits for its end.
type readAhead struct {
	timer *time.Timer   // begins it; nil before the first write
	stop  chan struct{} // holds one when the write has ended
	ended chan struct{} // holds one when nothing is read ahead any more

	mu sync.Mutex // while it reads, guards the read deadline
}

// beginWrite is called before a write that may wait for the client, endWrite after it.
func (c *client) beginWrite() {
	if a := &c.ahead; a.timer == nil {
		a.stop, a.ended = make(chan struct{}, 1), make(chan struct{}, 1)
		a.timer = time.AfterFunc(aheadAfter, c.readAhead)
	} else {
		a.timer.Reset(aheadAfter)
	}
}

func (c *client) endWrite() {
	a := &c.ahead
	if a.timer.Stop() {
		return
	}
	a.mu.Lock()
	a.stop <- struct{}{}
	err := c.setReadDeadline(longAgo)
	a.mu.Unlock()
	<-a.ended
	<-a.stop
	if err == nil {
		err = c.setReadDeadline(time.Time{})
	}
	if err != nil { // it is ending
		c.server.opts.Logger.Debug("deadline after reading ahead", "client", c.id, "err", err)
	}
}

// readAhead reads until the write has ended, or the connection has.
func (c *client) readAhead() {
	a := &c.ahead
	defer func() { a.ended <- struct{}{} }()
	a.mu.Lock()
	stop := len(a.stop) > 0 || c.setReadDeadline(time.Time{}) != nil
	a.mu.Unlock()
	for !stop {
		if !c.in.roomAhead() {
			stop = a.stopsWithin(aheadAgain)
			continue
		}
		stop = !c.in.readAhead()
	}
}

// stopsWithin waits, and says whether the write has ended meanwhile.
func (a *readAhead) stopsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case s := <-a.stop:
		a.stop <- s // endWrite takes it
		return true
	case <-timer.C:
		return false
	}
}

// roomAhead says whether there is room to read ahead into, which it makes.
func (in *input) roomAhead() bool {
	if n := len(in.ahead); n > 0 && len(in.ahead[n-1]) < cap(in.ahead[n-1]) {
		return true
	}
	most := in.large.most / 2 // the rest is for large requests…
	if in.parser.stranger {
		most /= 2 // …of those who have a password
	}
	if !in.large.takeBelow(aheadChunk, most) {
		return false
	}
	in.ahead = append(in.ahead, make([]byte, 0, aheadChunk))
	return true
}

// readAhead reads what comes next, and says whether more may come.
func (in *input) readAhead() bool {
	n := len(in.ahead) - 1
	last := in.ahead[n]
	got, err := in.conn.Read(last[len(last):cap(last)])
	if in.ahead[n] = last[:len(last)+got]; len(in.ahead[n]) == 0 {
		in.large.give(aheadChunk)
		in.ahead = slices.Delete(in.ahead, n, n+1)
	}
	return err == nil // an error comes again
}

// read is a Read of the connection, of what was read ahead first.
func (in *input) read(b []byte) (n int, err error) {
	for n == 0 && len(in.ahead) > 0 {
		first := &in.ahead[0]
		n = copy(b, *first)
		if *first = (*first)[n:]; len(*first) == 0 {
			in.dropAhead(1)
		}
	}
	if n > 0 {
		return n, nil
	}
	return in.conn.Read(b)
}

// dropAhead lets go of the first pieces that were read ahead.
func (in *input) dropAhead(n int) {
	in.large.give(int64(n) * aheadChunk)
	clear(in.ahead[:n]) // they are garbage now, though others of the array are in use
	if in.ahead = in.ahead[n:]; len(in.ahead) == 0 {
		in.ahead = nil
	}
}
