package resp

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Sizes in bytes of a connection's input buffer.
const (
	newBuffer     = 4 << 10  // initial size
	restingBuffer = 16 << 10 // largest size that a connection keeps while it is idle
	largeBatch    = 64 << 10 // largest size that is allocated only to enlarge batches
)

// errTooMuchInput is returned when the budget of Options.MaxBuffers is exhausted.
var errTooMuchInput = errors.New("too many large requests at once")

// budget is a number of bytes shared by many connections.
type budget struct {
	used atomic.Int64
	most int64
}

// take reserves n bytes and reports whether the budget had room for them.
func (b *budget) take(n int64) bool { return b.takeBelow(n, b.most) }

// takeBelow is take with a limit lower than the budget's own.
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

// share returns the most bytes that one of the server's tables takes of the budget: tables last, and the
// requests need most of it.
func (b *budget) share() int64 { return b.most / 8 }

// low reports whether more than half of the budget is in use.
func (b *budget) low() bool { return b.used.Load() > b.most/2 }

// input holds the bytes received from a connection. buf[start:end] has not been parsed yet.
// The arguments of a request point into buf and are valid until the next fill.
type input struct {
	conn       net.Conn
	parser     parser
	buf        []byte
	start, end int
	full       bool  // the last read filled buf or came from ahead: more input is likely
	last       int   // bytes read by the last fill
	charged    int64 // bytes taken from large for buf and parser
	large      *budget
	ahead      [][]byte // bytes read ahead, which follow buf; charged to large
	first      int      // where the batch's first request begins in buf
	inline     []span   // the words of that request, if it was typed as a line: parsing changes the line
}

func newInput(conn net.Conn, opts *Options, large *budget) input {
	return input{
		conn: conn, large: large,
		parser: parser{maxBulk: opts.MaxBulk, maxRequest: opts.MaxRequest},
	}
}

// next returns the next request that has arrived completely.
func (in *input) next() (r request, ok bool, err error) {
	data := in.buf[in.start:in.end]
	size, err := in.parser.next(data)
	if err != nil || size == 0 {
		return request{}, false, err
	}
	if in.start == in.first && data[0] != '*' {
		in.inline = append(in.inline, in.parser.args...)
	}
	in.start += size
	return request{data: data[:size], args: in.parser.args}, true, nil
}

// mark notes that the next request is the first of a batch.
func (in *input) mark() {
	in.first = in.start
	if in.inline = in.inline[:0]; cap(in.inline) > plainArgs {
		in.inline = nil
	}
}

// again returns the first request of the batch once more. There was no fill since mark.
func (in *input) again() (r request, ok bool) {
	data := in.buf[in.first:in.end]
	if len(in.inline) > 0 {
		return request{data: data, args: in.inline}, true
	}
	p := parser{maxBulk: in.parser.maxBulk, maxRequest: in.parser.maxRequest}
	size, err := p.next(data)
	if err != nil || size == 0 || len(p.args) == 0 {
		return request{}, false
	}
	return request{data: data[:size], args: p.args}, true
}

// empty reports whether nothing is unparsed, not even part of a request.
func (in *input) empty() bool { return in.start == in.end && len(in.ahead) == 0 }

// fill waits for input and reads it. It invalidates requests returned earlier.
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
		return nil // a persistent error is returned by the next read
	}
	return err
}

func (in *input) makeRoom() error {
	waiting := in.end - in.start
	if args := in.spans(); args > restingBuffer && waiting > 0 {
		if !in.charge(int64(len(in.buf) + args - restingBuffer)) {
			return errTooMuchInput
		}
	}
	if in.full && len(in.buf) < largeBatch && !in.large.low() {
		// The client pipelines more than buf holds: enlarge the batches while there is memory.
		if err := in.resize(2 * len(in.buf)); !errors.Is(err, errTooMuchInput) {
			return err
		}
	}
	switch {
	case in.buf == nil:
		return in.resize(newBuffer)
	case waiting == 0:
		in.start, in.end = 0, 0
		in.dropSpans()
	case in.end < len(in.buf):
	case waiting <= len(in.buf)/2:
		in.start, in.end = 0, copy(in.buf, in.buf[in.start:in.end])
	default:
		return in.resize(2 * len(in.buf))
	}
	return nil
}

// resize moves the unparsed bytes into a new buffer of the given size.
func (in *input) resize(size int) error {
	if !in.charge(int64(size + in.spans() - restingBuffer)) {
		return errTooMuchInput
	}
	buf := make([]byte, size)
	in.start, in.end = 0, copy(buf, in.buf[in.start:in.end])
	in.buf = buf
	return nil
}

// charge sets the number of bytes taken from the budget. If the budget has no room, it changes
// nothing and returns false.
func (in *input) charge(bytes int64) bool {
	bytes = max(bytes, 0)
	most := in.large.most
	if in.parser.unauthenticated {
		most /= 4 // the rest is reserved for authenticated clients
	}
	if more := bytes - in.charged; more <= 0 {
		in.large.give(-more)
	} else if !in.large.takeBelow(more, most) {
		return false
	}
	in.charged = bytes
	return true
}

// release frees the buffers that an idle connection does not need.
func (in *input) release() {
	in.buf, in.start, in.end, in.full = nil, 0, 0, false
	in.dropSpans()
	in.dropAhead(len(in.ahead))
	in.charge(0)
}

// spans returns the memory of the spans of commands.
func (in *input) spans() int {
	return (cap(in.parser.args) + cap(in.inline)) * int(unsafe.Sizeof(span{}))
}

// dropSpans frees the memory of the spans of commands with many arguments, which have run.
func (in *input) dropSpans() {
	if in.spans() > restingBuffer {
		in.parser.args, in.inline = nil, nil
	}
}

// roomy reports whether shrink frees anything that counts.
func (in *input) roomy() bool {
	return len(in.buf) > restingBuffer || in.charged > 0 || in.spans() > restingBuffer
}

// shrink frees what a connection does not need while it waits for input. The received part of
// a command is kept.
func (in *input) shrink() {
	in.inline = nil
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

// isTimeout reports whether a read ended because of its deadline.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// A client may send a long pipeline before it reads the first reply. When the replies fill all
// buffers in between, client and server would wait for each other to read. So while a write
// waits, the connection's input is read ahead, within the budget for requests: requests take
// less memory than their replies.

// A connection begins to read ahead when a write takes longer than aheadAfter. It reads in
// pieces of aheadChunk bytes. If the budget has no room, it is asked again every aheadAgain.
const (
	aheadAfter = 10 * time.Millisecond
	aheadAgain = 20 * time.Millisecond
	aheadChunk = 64 << 10
)

// readAhead reads from a connection while a write to it waits. Its goroutine owns the
// connection's input until endWrite has waited for it.
type readAhead struct {
	timer *time.Timer   // starts the goroutine; nil before the first write
	stop  chan struct{} // holds one element when the write has ended
	ended chan struct{} // holds one element when the goroutine has ended

	mu sync.Mutex // guards the read deadline while the goroutine runs
}

// beginWrite must be called before a write that may block, and endWrite after it.
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
	if err != nil { // the connection is closing
		c.server.opts.Logger.Debug("deadline after reading ahead", "client", c.id, "err", err)
	}
}

// readAhead reads until the write has ended or the connection fails.
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

// stopsWithin waits for d, or until the write has ended, and reports whether it has.
func (a *readAhead) stopsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case s := <-a.stop:
		a.stop <- s // for endWrite to receive
		return true
	case <-timer.C:
		return false
	}
}

// roomAhead makes room to read ahead, and reports whether there is any.
func (in *input) roomAhead() bool {
	if n := len(in.ahead); n > 0 && len(in.ahead[n-1]) < cap(in.ahead[n-1]) {
		return true
	}
	most := in.large.most / 2 // the rest is reserved for large requests
	if in.parser.unauthenticated {
		most /= 2 // the rest is reserved for authenticated clients
	}
	if !in.large.takeBelow(aheadChunk, most) {
		return false
	}
	in.ahead = append(in.ahead, make([]byte, 0, aheadChunk))
	return true
}

// readAhead reads once, and reports whether reading may continue.
func (in *input) readAhead() bool {
	n := len(in.ahead) - 1
	last := in.ahead[n]
	got, err := in.conn.Read(last[len(last):cap(last)])
	if in.ahead[n] = last[:len(last)+got]; len(in.ahead[n]) == 0 {
		in.large.give(aheadChunk)
		in.ahead = slices.Delete(in.ahead, n, n+1)
	}
	return err == nil // a persistent error is returned by the next read
}

// read returns bytes that were read ahead, or else reads from the connection.
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

// dropAhead frees the first n pieces that were read ahead.
func (in *input) dropAhead(n int) {
	in.large.give(int64(n) * aheadChunk)
	clear(in.ahead[:n]) // the array may still hold other pieces
	if in.ahead = in.ahead[n:]; len(in.ahead) == 0 {
		in.ahead = nil
	}
}
