package resp

import (
	"slices"
	"sync"
	"time"
)

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
