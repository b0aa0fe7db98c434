//go:build verbs && linux && cgo

package verbs

/*
#include "queue.h"

#cgo noescape queue_step
#cgo nocallback queue_step
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

const (
	// batch is the most work requests, or completions, of one call into C.
	batch = 256
	// directPiece is the most bytes of one work request; devices allow more.
	directPiece = 1 << 20
	// sendID is set in the ids of sends, and not in those of receives.
	sendID = 1 << 63
	// opFenced makes a work request wait for the reads before it.
	opFenced = C.OP_FENCED
)

// pipe passes operations through a queue pair's send queue in pieces, each a work request. An
// entry is one piece, or a refused operation, which keeps its place among the others. Entries
// [finished, posted) are pending.
type pipe struct {
	entries          []entry // a power of two
	finished, posted uint64
	limit            uint64 // most pending work requests
	silent           uint64 // work requests since the last one with a completion
	issued           int64  // bytes of the next operation that have entries
	imms             uint64 // immediates sent
	staging          staging
	reads            hazards
	ops              []C.struct_op
	done             []C.struct_done
	taken            C.int // of done
	broken           bool  // a work request failed; later completions are not valid
}

type entry struct {
	op      uint64  // its number in the send queue
	remote  *remote // nil if nothing was posted
	fill    []byte  // for a staged read: its destination,
	from    []byte  // and its bytes in the staging ring
	mark    uint64  // the staging ring is free below mark when the piece is done
	address uint64  // the peer's
	n       int
	read    bool
	last    bool // last piece of its operation
}

func (p *pipe) init(e *endpoint) {
	p.entries, p.limit = make([]entry, 1<<bits.Len(uint(e.sends-1))), uint64(e.sends)
	p.staging.memory = e.ring
	p.ops, p.done = make([]C.struct_op, 0, batch), make([]C.struct_done, batch)
}

func (p *pipe) at(i uint64) *entry { return &p.entries[i&uint64(len(p.entries)-1)] }

// issue turns submitted operations into work requests, as far as there is room.
func (q *queuePair) issue() {
	p := &q.pipe
	p.ops = p.ops[:0]
	i, to := q.Sends.Next()
	for i != to && p.posted-p.finished < p.limit && len(p.ops) < batch {
		s := q.Sends.At(i)
		e := p.at(p.posted)
		*e = entry{op: i, mark: p.staging.head}
		r, err := q.target(s)
		if err == nil && (len(s.Buf) > 0 || s.Kind == core.WriteImm) {
			var fits bool
			if fits, err = q.piece(s, r, e); !fits && err == nil {
				break
			}
		} else {
			e.last = true
		}
		if err != nil {
			s.Err = err
			*e = entry{op: i, mark: p.staging.head, last: true}
		}
		p.posted++
		if e.last {
			p.issued = 0
			i++
		}
	}
	q.Sends.Start(i)
	if n := len(p.ops); n > 0 {
		p.ops[n-1].kind |= C.OP_SIGNALED
		p.silent = 0
	}
}

// target returns the region of an operation.
func (q *queuePair) target(s *core.Request) (*remote, error) {
	r := q.imports.Get(s.Handle)
	if r == nil || (*r).dead {
		return nil, fabric.ErrBadToken
	}
	return *r, core.CheckBounds(s.Offset, len(s.Buf), (*r).size)
}

// piece creates the next work request of an operation, unless there is no room.
func (q *queuePair) piece(s *core.Request, r *remote, e *entry) (fits bool, err error) {
	p := &q.pipe
	rest := s.Buf[p.issued:]
	inline := s.Kind != core.Read && len(s.Buf) <= int(q.rdma.queue.inline_size)
	var own *region
	if !inline && len(rest) > 0 {
		own = q.provider.regionOf(rest)
	}
	e.n = min(len(rest), len(p.staging.memory)/4)
	if own != nil {
		e.n = min(len(rest), directPiece)
	}
	whole := e.n == len(s.Buf)
	hasImm := s.Kind == core.WriteImm && (whole || len(rest) == 0)
	if hasImm && p.imms-q.granted.Load() >= core.ImmEntries {
		return false, nil
	}
	op := C.struct_op{
		id: C.uint64_t(sendID | p.posted), remote: C.uint64_t(r.address + uint64(s.Offset+p.issued)),
		rkey: C.uint32_t(r.key), length: C.uint32_t(e.n), imm: C.uint32_t(s.Imm),
	}
	e.last = e.n == len(rest)
	switch {
	case s.Kind == core.Read:
		op.kind = C.OP_READ
	case hasImm && whole:
		op.kind = C.OP_WRITE_IMM
	case hasImm:
		// All pieces are issued. The immediate carries their length to the peer.
		var length [C.RECEIVE_SLOT]byte
		binary.LittleEndian.PutUint64(length[:], uint64(len(s.Buf)))
		rest, e.n, e.last = length[:], len(length), true
		op.kind, op.length = C.OP_SEND_IMM, C.RECEIVE_SLOT
	default:
		op.kind = C.OP_WRITE
		e.last = e.last && s.Kind == core.Write
	}
	if own != nil {
		key, err := q.key(own)
		if err != nil {
			return false, err
		}
		op.local, op.lkey = C.uint64_t(address(rest)), key
	} else if !q.stage(s.Kind, rest[:e.n], e, &op) {
		return false, nil
	}
	switch {
	case s.Kind == core.Read:
		e.read, e.address = true, uint64(op.remote)
		p.reads.begin(e.address, e.n)
	case hasImm && p.reads.reads > 0, op.kind == C.OP_WRITE && p.reads.conflicts(uint64(op.remote), e.n):
		op.kind |= opFenced
	}
	if inline {
		op.kind |= C.OP_INLINE
	}
	if hasImm {
		p.imms++
	}
	if p.silent++; p.silent >= p.limit/2 {
		op.kind |= C.OP_SIGNALED
		p.silent = 0
	}
	e.remote = r
	r.pending++
	p.issued += int64(e.n)
	p.ops = append(p.ops, op)
	return true, nil
}

// stage gives a piece registered memory.
func (q *queuePair) stage(kind core.Kind, b []byte, e *entry, op *C.struct_op) bool {
	if len(b) == 0 {
		return true
	}
	held, mark, ok := q.pipe.staging.take(len(b))
	if !ok {
		return false
	}
	e.mark = mark
	op.local, op.lkey = C.uint64_t(address(held)), q.rdma.key.lkey
	if kind == core.Read {
		e.fill, e.from = b, held
	} else {
		copy(held, b)
	}
	return true
}

// step posts submitted operations and takes completions. Called by the owner with mu held,
// while the connection lives.
func (q *queuePair) step() {
	p := &q.pipe
	for {
		q.issue()
		var first *C.struct_op
		if len(p.ops) > 0 {
			first = &p.ops[0]
		}
		n := C.queue_step(q.rdma.queue, first, C.int(len(p.ops)), &p.done[0], batch, &p.taken)
		q.settle(p.done[:p.taken])
		if n != 0 {
			q.fail(fmt.Errorf("post work requests: %w", errno(n)))
			return
		}
		if p.taken < batch && (len(p.ops) == 0 || !q.Sends.Waiting()) || q.ended() {
			return
		}
	}
}

// take takes completions and posts nothing. Called with mu held, while the connection lives.
func (q *queuePair) take() error {
	p := &q.pipe
	for {
		n := C.queue_step(q.rdma.queue, nil, 0, &p.done[0], batch, &p.taken)
		q.settle(p.done[:p.taken])
		if n != 0 {
			return fmt.Errorf("poll completions: %w", errno(n))
		}
		if p.taken < batch || q.ended() {
			return nil
		}
	}
}

// settle handles completions. After the first error the others are ignored.
func (q *queuePair) settle(done []C.struct_done) {
	p := &q.pipe
	to := p.finished
	for i := range done {
		d := &done[i]
		seq := uint64(d.id) &^ sendID
		switch {
		case p.broken:
			return
		case d.id&sendID == 0:
			q.hear(d)
		case d.status == C.IBV_WC_SUCCESS:
			to = seq + 1
		default:
			q.finish(seq) // earlier ones have succeeded, with or without a completion
			q.broke(d)
			return
		}
	}
	q.finish(to)
}

// finish ends entries below to, and directly following ones that were never posted.
func (q *queuePair) finish(to uint64) {
	p := &q.pipe
	done := q.Sends.Done()
	for p.finished != p.posted {
		e := p.at(p.finished)
		if e.remote != nil {
			if p.finished >= to {
				break
			}
			copy(e.fill, e.from)
			if e.read {
				p.reads.end(e.address, e.n)
			}
			if e.remote.pending--; e.remote.dead && e.remote.pending == 0 {
				q.retiring--
				q.giveBack(e.remote)
			}
			e.remote, e.fill, e.from = nil, nil, nil
		}
		p.staging.give(e.mark)
		if e.last {
			done = e.op + 1
		}
		p.finished++
	}
	q.Sends.Finish(done)
}

// broke ends the connection after a failed work request. A refused access, too, means that the
// peer has disconnected: invalid operations are not posted.
func (q *queuePair) broke(d *C.struct_done) {
	q.pipe.broken = true
	q.fail(statusOf(d))
}

// statusOf returns libibverbs' text for a work request's status, and the vendor's code.
func statusOf(d *C.struct_done) error {
	text := C.GoString(C.ibv_wc_status_str(C.enum_ibv_wc_status(d.status)))
	if d.vendor != 0 {
		text = fmt.Sprintf("%s (vendor error %#x)", text, uint32(d.vendor))
	}
	return errors.New(text)
}

// hear handles an immediate of the peer.
func (q *queuePair) hear(d *C.struct_done) {
	n := uint64(d.length)
	switch {
	case d.status == C.IBV_WC_WR_FLUSH_ERR:
		return // the connection ends; its state has the reason
	case d.status != C.IBV_WC_SUCCESS:
		q.fail(fmt.Errorf("receive: %w", statusOf(d)))
		return
	case d.opcode == C.IBV_WC_RECV && n == C.RECEIVE_SLOT:
		at := uint64(d.id) * C.RECEIVE_SLOT
		n = binary.LittleEndian.Uint64(q.rdma.slots[at:])
	}
	if d.has_imm == 0 || n > core.MaxLength {
		q.fail(fmt.Errorf("%w: not an immediate", wire.ErrMalformed))
	} else if pushed, err := q.heard.Push(uint32(d.imm), int(n)); err != nil || !pushed {
		q.fail(fmt.Errorf("%w: immediate without a receive", wire.ErrMalformed))
	}
}
