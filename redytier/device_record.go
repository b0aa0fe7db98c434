package redytier

import "github.com/cespare/xxhash/v2"

// recorder makes the records of the current life from what the log writes, in the order of the
// calls. pieces.mu guards it.
//
// The unit of a log's writes is at most a piece. So what a write says is final up to the piece
// in which it ends, and that one is once a later write begins behind it.
type recorder struct {
	start, end    int64        // of the last write
	before, after hashed       // up to start, and up to end
	held          *pieceRecord // of the piece that ends at end; nil: none
	// final is the address below which the log does not write again, as far as a record
	// relies on that: a write below recorded begins another life.
	final, recorded int64
	low             int64         // of the piece in which the life began: a write below begins another life
	due             []pieceRecord // to be written to the table
}

// hashed is the state of a piece's checksum.
type hashed struct {
	sum   xxhash.Digest
	whole bool // it began with the piece
}

// startAt prepares for a log that ends at tail. Its last piece was begun by an earlier life. A piece that
// ends at tail is not final: the log may end in its last block, and writes that again.
func (r *recorder) startAt(tail int64, shift uint) {
	*r = recorder{start: -1, end: -1, final: max(0, tail-1) >> shift << shift, low: tail >> shift << shift, due: r.due}
}

// wrote notes a write of the log.
func (r *recorder) wrote(src []byte, addr int64, shift uint, life uint64) {
	size := int64(1) << shift
	state := hashed{whole: addr&(size-1) == 0}
	state.sum.Reset()
	switch addr {
	case r.end:
		state = r.after
	case r.start: // the last block again
		state = r.before
	}
	if r.held != nil && addr >= (r.held.piece+1)<<shift {
		r.add(*r.held, shift)
	}
	r.held = nil
	r.before, r.start = state, addr
	r.final = max(r.final, addr)
	end := addr + int64(len(src))
	last := (end - 1) >> shift
	for len(src) > 0 {
		piece := addr >> shift
		n := min(int64(len(src)), (piece+1)<<shift-addr)
		_, _ = state.sum.Write(src[:n]) // it never fails
		src, addr = src[n:], addr+n
		if addr&(size-1) != 0 {
			break
		}
		switch record := (pieceRecord{piece, life, state.sum.Sum64()}); {
		case !state.whole:
		case piece == last:
			r.held = &record
		default:
			r.add(record, shift)
		}
		state.whole = true
		state.sum.Reset()
	}
	r.after, r.end = state, end
}

// skipped notes that a write of the log was not stored as a whole.
func (r *recorder) skipped(addr int64) {
	r.held, r.start, r.end = nil, -1, -1
	r.final = max(r.final, addr)
}

// refilled notes bytes of the log that were copied from another tier.
func (r *recorder) refilled(src []byte, addr int64, shift uint, life uint64) {
	size := int64(1) << shift
	skip := -addr & (size - 1)
	for skip+size <= int64(len(src)) && addr+skip+size <= r.final {
		r.add(pieceRecord{(addr + skip) >> shift, life, xxhash.Sum64(src[skip : skip+size])}, shift)
		skip += size
	}
}

// maxDue bounds the records that wait while the table cannot be reached. The oldest ones are
// dropped.
const maxDue = 1 << 16

// add makes a record due.
func (r *recorder) add(record pieceRecord, shift uint) {
	r.due = append(r.due[max(0, len(r.due)+1-maxDue):], record)
	r.recorded = max(r.recorded, (record.piece+1)<<shift)
}

// admit prepares a write of the log at addr. A write below what the current life has recorded, or
// below where it began, as when a log is restored from several copies, begins another life.
func (p *pieces) admit(addr int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr >= max(p.current.recorded, p.current.low) {
		return nil
	}
	return p.begin(addr)
}

// record notes what a queue has begun to store: src, if o is no refused write.
func (p *pieces) record(src []byte, o *deviceOp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.current
	before := len(r.due)
	switch {
	case o.kind == opRefill:
		r.refilled(src, o.addr, p.shift, p.lives.current())
	case o.kind == opRefused || o.held != o.addr:
		r.skipped(o.addr)
	default:
		r.wrote(src, o.addr, p.shift, p.lives.current())
	}
	if len(r.due) > before {
		offer(p.wake)
	}
}

// begin begins a life at a tail. It is durable when begin returns. The caller holds mu.
func (p *pieces) begin(tail int64) error {
	p.lives = p.lives.begin(tail, p.d.begin.Load())
	p.current.startAt(tail, p.shift)
	return p.store()
}
