package tcp

import (
	"fmt"
	"math"
	"runtime"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// reader is the state of the goroutine that reads a connection. It blocks only for input:
// replies go to the outbox, immediates to a ring for which the peer has credit.
type reader struct {
	pair *queuePair
	in   *input

	// The passive side.
	terms   core.Terms // of the peer
	gate    core.Gate  // entered while it accesses this host's regions
	lent    core.Handles[*core.Region]
	imms    core.ImmRing
	partial uint64 // bytes of an unfinished write, and its first error
	failed  error

	// The initiator's side.
	replies uint64 // replies taken
	done    uint64 // operations finished
	filled  int64  // bytes of the following operation
	repaid  uint64
}

func (r *reader) run() { r.pair.ended(r.loop()) }

func (r *reader) loop() error {
	defer r.in.close()
	for {
		if err := r.in.fill(); err != nil {
			return err
		}
		if q := r.pair; !q.heard.Load() {
			q.heard.Store(true)
		}
		for more := true; more; {
			var used int
			var err error
			if used, more, err = r.handle(r.in.bytes()); err != nil {
				return err
			}
			r.in.handled(used)
		}
	}
}

// handle executes the complete frames of b, up to one that takes long: then there may be more, for
// which others do not wait. It publishes completions and sends answers once.
func (r *reader) handle(b []byte) (used int, more bool, err error) {
	q := r.pair
	q.out.mu.Lock()
	r.gate.Enter()
	notify, flush, ahead := false, false, 0
	for {
		var f frame
		var n int
		if used >= ahead {
			ahead = r.touch(b, used)
		}
		if n, err = decode(b[used:], &f); n == 0 || err != nil {
			break
		}
		used += n
		if err = r.take(&f); err != nil {
			break
		}
		notify = notify || f.kind == kindReply || f.kind == kindWriteImm || f.kind == kindCredit
		flush = flush || f.kind != kindReply && f.kind != kindWriteImm && f.kind != kindCredit
		if more = f.kind == kindData; more {
			break
		}
	}
	if flush {
		q.out.flush() // inside the gate: bodies are lent from regions
	}
	r.gate.Leave()
	q.out.mu.Unlock()
	if notify {
		q.repaid.Store(r.repaid)
		q.Sends.Finish(r.done)
		q.Notify()
	}
	if !flush {
		r.linger()
	}
	return used, more, err
}

// lingerings is how often linger yields.
const lingerings = 4

// linger sends the replies to immediates. The owner, which was just notified, usually sends
// frames in answer; the replies leave with them, which saves a system call on either side. So
// linger lets the owner run first.
func (r *reader) linger() {
	o := r.pair.out
	for range lingerings {
		o.mu.Lock()
		pending := len(o.buf) > o.sent
		o.mu.Unlock()
		if !pending {
			return
		}
		runtime.Gosched()
	}
	o.mu.Lock()
	o.flush()
	o.mu.Unlock()
}

// touch prefetches the memory of the next requests and returns where it ended. Frames that
// are not requests are skipped.
func (r *reader) touch(b []byte, at int) int {
	for range core.Ahead {
		var f frame
		n, err := decode(b[at:], &f)
		if n == 0 || err != nil {
			return len(b)
		}
		at += n
		if f.kind != kindRead && f.kind != kindWrite && f.kind != kindWriteImm {
			return at
		}
		if g := r.lent.Get(f.handle); g != nil {
			(*g).Touch(f.offset, int(f.length))
		}
	}
	return at
}

// take executes one frame, inside the gate and with the outbox's lock held.
func (r *reader) take(f *frame) error {
	q := r.pair
	switch f.kind {
	case kindReply:
		return r.reply(f)
	case kindRead:
		b, err := r.access(f)
		return r.answer(err, b)
	case kindWrite, kindWriteImm:
		return r.write(f)
	case kindNop:
		return r.answer(nil, nil)
	case kindImport:
		return r.lend(f)
	case kindRelease:
		r.lent.Delete(f.handle)
	case kindCredit:
		q.granted.Add(uint64(f.length))
	case kindData:
		return r.find(f)
	case kindFound:
		q.found.Answer(f.imm, span{f.offset, f.offset + int64(f.length)}, errorOf(f.flags))
	case kindPing:
		return r.respond(&frame{kind: kindPong})
	case kindLent:
		if f.offset <= 0 && f.flags == statusOK {
			return fmt.Errorf("%w: lent region of %d bytes", errFrame, f.offset)
		}
		wanted := q.lent.Answer(f.imm, remote{handle: f.handle, size: f.offset}, errorOf(f.flags))
		if !wanted && f.flags == statusOK { // Import has given up
			return r.respond(&frame{kind: kindRelease, handle: f.handle})
		}
	}
	return nil
}

func (r *reader) access(f *frame) ([]byte, error) {
	g := r.lent.Get(f.handle)
	if g == nil {
		return nil, fabric.ErrBadToken
	}
	return (*g).Access(f.offset, int(f.length))
}

func (r *reader) write(f *frame) error {
	if r.pair.out.lent > 0 {
		r.pair.out.copyBodies() // of reads before this write
	}
	b, err := r.access(f)
	if r.terms.Rights == fabric.ReadOnly {
		b, err = nil, fabric.ErrBadToken
	}
	copy(b, f.body)
	if r.failed == nil {
		r.failed = err
	}
	r.partial += uint64(f.length)
	if f.flags&flagMore != 0 {
		return r.answer(err, nil)
	}
	n, first := r.partial, r.failed
	r.partial, r.failed = 0, nil
	if f.kind == kindWriteImm && first == nil {
		pushed, broken := r.imms.Push(f.imm, int(n))
		if broken != nil {
			return broken
		}
		if !pushed {
			return fmt.Errorf("%w: immediate without credit", errFrame)
		}
	}
	return r.answer(first, nil)
}

// fewWaiting is how many bytes may wait for a peer however many wait for all.
const fewWaiting = window / 16

// answer appends a reply. The peer's window bounds the bytes that wait.
func (r *reader) answer(err error, body []byte) error {
	o, waiting := r.pair.out, r.pair.waiting
	if o.err != nil {
		return o.err
	}
	switch n := o.pending(); {
	case n > 2*window:
		return fmt.Errorf("%w: pending requests exceed the window", errFrame)
	case n > fewWaiting && waiting != nil && waiting.Load() > r.pair.provider.most:
		return fmt.Errorf("%d bytes wait for the peer, and too many for all", n)
	}
	o.buf = appendReply(o.buf, statusOf(err), len(body))
	o.append(body)
	if o.pending() >= enough {
		o.flush() // the peer can begin to read
	}
	return nil
}

func (r *reader) lend(f *frame) error {
	answer := frame{kind: kindLent, imm: f.imm}
	token := fabric.Token(f.body)
	g, err := r.pair.provider.regions.Find(token)
	if err == nil && !r.terms.Lends(token) {
		err = fabric.ErrBadToken
	}
	if err == nil {
		answer.handle, err = r.lent.Put(g)
		answer.offset = g.Size()
	}
	answer.flags = statusOf(err)
	return r.respond(&answer)
}

// findAtOnce is how many bytes of a region one question is about: others wait for the answer.
const findAtOnce = 64 << 20

// find answers where a region has data. Longer ranges than a length are answered in parts, and an
// empty range says that there is nothing up to it.
func (r *reader) find(f *frame) error {
	answer := frame{kind: kindFound, imm: f.imm}
	err := fabric.ErrBadToken
	if g := r.lent.Get(f.handle); g != nil {
		var begin, end int64
		if begin, end, err = (*g).NextData(f.offset, findAtOnce); err == nil {
			answer.offset, answer.length = begin, uint32(min(end-begin, math.MaxUint32))
		}
	}
	answer.flags = statusOf(err)
	return r.respond(&answer)
}

// respond appends an answer other than a reply.
func (r *reader) respond(answer *frame) error {
	o := r.pair.out
	if o.pending() > 2*window {
		return fmt.Errorf("%w: pending requests exceed the window", errFrame)
	}
	o.buf = appendHeader(o.buf, answer)
	return nil
}

// reply ends a fragment of the oldest pending operation.
func (r *reader) reply(f *frame) error {
	q := r.pair
	if r.replies == q.requests.Load() { // else the request below is published
		return fmt.Errorf("%w: reply without a request", errFrame)
	}
	r.replies++
	r.repaid += requestCost
	s := q.Sends.At(r.done)
	if refused := r.filled == 0 && s.Err != nil; refused {
		r.done++ // it failed on this side and was sent as a nop
		return nil
	}
	n := min(int64(len(s.Buf))-r.filled, maxFragment)
	switch {
	case f.flags != statusOK:
		if len(f.body) != 0 {
			return fmt.Errorf("%w: error reply with %d bytes", errFrame, len(f.body))
		}
		if s.Err == nil {
			s.Err = errorOf(f.flags)
		}
	case s.Kind == core.Read && int64(len(f.body)) == n:
		copy(s.Buf[r.filled:], f.body)
	case s.Kind == core.Read || len(f.body) != 0:
		return fmt.Errorf("%w: reply of %d bytes to a request of %d", errFrame, len(f.body), n)
	}
	r.repaid += uint64(n)
	if r.filled += n; r.filled == int64(len(s.Buf)) {
		r.done, r.filled = r.done+1, 0
	}
	return nil
}
