package redytier

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// ring is the client's side of a connection's two message rings.
//
//	taken, answered ≤ sent
//
// Batches up to sent are sent, the writes of those up to taken are complete, and those up to
// answered have responses. A slot is reused when both are true of its batch. Batch n lies in
// slot n mod depth of staging and of the server's request ring, its response in the same slot
// of responses.
//
// A batch is closed at b requests or when its payload is full (A13). A full batch is sent
// when a slot is free, a partial one also needs Submit (A1). Requests larger than a payload
// are split into fragments, which keeps them in order without a fence (A11).
type ring struct {
	batch, depth int // requests of a full batch, and pending batches
	slot         int // bytes
	staging      fabric.Region
	responses    fabric.Region
	requests     fabric.Remote // the server's ring

	waiting   fifo[request]
	cut       int    // bytes of the first waiting request that are sent
	submitted uint64 // waiting requests before this one may be sent in a partial batch

	entries               [][]entry // by slot: the entries of its batch
	sent, taken, answered uint64
	settled               uint64 // requests, in the order of issue

	// beat is the latest beat that the owner has seen, and quiet the number of beats since
	// the server's last answer, or since the first pending batch.
	beat  uint64
	quiet int
}

// entry is one request, or a fragment, in a batch.
type entry struct {
	share
	last    bool // fragment of its request
	settled bool
	n       int
	dst     []byte // of a read
}

// newRing allocates both rings of a connection.
func newRing(p fabric.Provider, e *endpoint, waiting int) (*ring, error) {
	r := &ring{
		batch: e.fill, depth: e.depth, slot: redywire.SlotSize(e.batch),
		waiting: newFIFO[request](waiting),
		entries: make([][]entry, e.depth),
	}
	for i := range r.entries {
		r.entries[i] = make([]entry, 0, e.fill)
	}
	var err error
	if r.staging, err = p.Alloc(r.size()); err != nil {
		return nil, fmt.Errorf("request staging: %w", err)
	}
	if r.responses, err = p.Alloc(r.size()); err != nil {
		return nil, errors.Join(fmt.Errorf("response ring: %w", err), r.staging.Close())
	}
	return r, nil
}

func (r *ring) size() int { return r.slot * r.depth }

func (r *ring) close() error { return errors.Join(r.staging.Close(), r.responses.Close()) }

func (r *ring) busy() bool { return r.waiting.len() > 0 || r.pending() }

// pending reports whether a batch is pending.
func (r *ring) pending() bool { return r.sent > min(r.taken, r.answered) }

// send fills free slots with waiting requests, rings the doorbell and returns the number of
// batches sent.
func (r *ring) send(qp fabric.QueuePair, beat uint64) (int, error) {
	if !r.pending() {
		r.beat, r.quiet = beat, 0
	}
	before := r.sent
	for r.sent-min(r.taken, r.answered) < uint64(r.depth) &&
		(r.waiting.len() >= r.batch || int64(r.submitted-r.waiting.head) > 0) {
		if err := r.sendBatch(qp); err != nil {
			return 0, err
		}
	}
	if r.sent == before {
		return 0, nil
	}
	return int(r.sent - before), qp.Submit()
}

// sendBatch fills the next slot, which is free, and enqueues its write.
func (r *ring) sendBatch(qp fabric.QueuePair) error {
	seq := r.sent + 1
	index := int(seq % uint64(r.depth))
	at := index * r.slot
	entries := r.entries[index][:0]
	var w redywire.Writer
	w.Reset(r.staging.Bytes()[at : at+r.slot])
	var payload [2]int // bytes to read, bytes to write
	for len(entries) < r.batch && r.waiting.len() > 0 {
		q := r.waiting.front()
		buf := q.buf[r.cut:]
		sum := &payload[0]
		if q.write {
			sum = &payload[1]
		}
		if room := redywire.MaxPayload - *sum; len(buf) > room {
			// A request that fits into one batch is not split.
			if room == 0 || len(buf) <= redywire.MaxPayload {
				break
			}
			buf = buf[:room]
		}
		*sum += len(buf)
		e := entry{share: q.share, n: len(buf)}
		if q.write {
			w.Write(q.index, q.offset+int64(r.cut), buf)
		} else {
			w.Read(q.index, q.offset+int64(r.cut), len(buf))
			e.dst = buf
		}
		if r.cut += len(buf); r.cut == len(q.buf) {
			r.cut = 0
			e.last = true
			r.waiting.pop()
		}
		entries = append(entries, e)
	}
	r.entries[index] = entries
	r.sent = seq
	return qp.WriteImm(w.Seal(seq), r.requests, int64(at), uint32(seq), seq)
}

// take handles one completion of the queue pair: that of a batch's write, or
// the arrival of a response.
func (r *ring) take(d fabric.Completion, c *conn) error {
	if d.Err != nil {
		return d.Err
	}
	if d.Op != fabric.OpRecv {
		r.taken++
		return nil
	}
	if r.answered == r.sent || d.Imm != uint32(r.answered+1) {
		return fmt.Errorf("%w: response %d announced with %d of %d batches answered",
			redywire.ErrMalformed, d.Imm, r.answered, r.sent)
	}
	return r.answer(c)
}

// answer settles the requests of the oldest pending batch with its response (R40). The
// response is not trusted: a payload is copied only to the buffer of its request.
func (r *ring) answer(c *conn) error {
	seq := r.answered + 1
	index := int(seq % uint64(r.depth))
	entries := r.entries[index]
	var in redywire.Reader
	if err := in.Open(r.responses.Bytes()[index*r.slot:(index+1)*r.slot], seq, len(entries)); err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		p, err := in.Response()
		if err != nil {
			return err
		}
		if p.Status != redywire.StatusOK {
			err = c.unavailable(fmt.Errorf("server answers %v", p.Status))
		} else if len(p.Payload) != len(e.dst) {
			return fmt.Errorf("%w: %d bytes read where %d were asked for", redywire.ErrMalformed, len(p.Payload), len(e.dst))
		}
		copy(e.dst, p.Payload)
		e.settled = true
		if e.last {
			r.settled++
		}
		c.finish(e.share, e.n, err)
	}
	r.answered, r.quiet = seq, 0
	return nil
}

// silent reports, at a beat, whether the server has not answered for too long. It counts only
// beats at which the owner polled: missed polls are not the server's fault.
func (r *ring) silent(beat uint64) bool {
	if beat == r.beat {
		return false
	}
	r.beat = beat
	if !r.pending() {
		return false
	}
	r.quiet++
	return r.quiet > silentBeats
}

// abandon fails all waiting and pending requests.
func (r *ring) abandon(c *conn) {
	for r.answered < r.sent {
		r.answered++
		for _, e := range r.entries[r.answered%uint64(r.depth)] {
			if !e.settled {
				c.finish(e.share, e.n, c.err)
			}
		}
	}
	for r.waiting.len() > 0 {
		q := r.waiting.pop()
		c.finish(q.share, len(q.buf)-r.cut, c.err)
		r.cut = 0
	}
}
