package devicetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// Pump drives one queue of a device and checks every completion: that it belongs to a pending
// operation, that the events of an operation are in order and come once, and that a read has the
// expected bytes. A read may also fail with ErrNotHeld if the device's Begin has passed its
// address. A Pump belongs to one goroutine, any one: it reports with t.Errorf.
type Pump struct {
	// Tolerate, if set, is an error with which an operation may end.
	Tolerate error
	// Idle, if set, is called before every wait and repeatedly during it.
	Idle func()

	t    testing.TB
	d    device.Device
	q    device.Queue
	ops  map[uint64]*pumpOp
	next uint64
	done []device.Completion
	err  error // why the queue can no longer be used
}

type pumpOp struct {
	write     bool
	committed bool
	buf       []byte
	addr      int64
	want      []byte      // what the read must bring
	fails     bool        // the read must fail,
	target    error       // with this, if not nil
	ended     func(error) // called with the outcome of a write
}

// NewPump makes a queue of that depth on d.
func NewPump(t testing.TB, d device.Device, depth int) *Pump {
	p := &Pump{t: t, d: d, ops: make(map[uint64]*pumpOp), done: make([]device.Completion, 1+depth/2)}
	p.q, p.err = d.NewQueue(depth)
	if p.err != nil {
		t.Errorf("NewQueue: %v", p.err)
	}
	return p
}

// Read reads into dst and expects want there.
func (p *Pump) Read(dst []byte, addr int64, want []byte) {
	p.do(&pumpOp{buf: dst, addr: addr, want: want})
}

// ReadFails expects the read to fail, with target if that is not nil.
func (p *Pump) ReadFails(dst []byte, addr int64, target error) {
	p.do(&pumpOp{buf: dst, addr: addr, fails: true, target: target})
}

// Write writes src and expects success; ended, if not nil, is called after the
// last event. By then src is overwritten, as the owner of a buffer may.
func (p *Pump) Write(src []byte, addr int64, ended func(error)) {
	p.do(&pumpOp{write: true, buf: src, addr: addr, ended: ended})
}

// Drain waits until every operation has had its last event.
func (p *Pump) Drain() {
	for len(p.ops) > 0 && p.err == nil {
		p.wait()
	}
}

// Close drains and closes the queue.
func (p *Pump) Close() {
	p.Drain()
	if p.q == nil {
		return
	}
	if err := p.q.Close(); err != nil {
		p.t.Errorf("closing a queue: %v", err)
	}
}

func (p *Pump) do(op *pumpOp) {
	tag := p.next
	p.next++
	for p.err == nil {
		var err error
		if op.write {
			err = p.q.Write(op.buf, op.addr, tag)
		} else {
			err = p.q.Read(op.buf, op.addr, tag)
		}
		switch {
		case err == nil:
			p.ops[tag] = op
			return
		case errors.Is(err, device.ErrQueueFull):
			p.wait()
		default:
			p.end(op, err)
			return
		}
	}
}

// wait submits, waits for completions and checks them.
func (p *Pump) wait() {
	if p.err = p.q.Submit(); p.err == nil {
		p.err = p.park()
	}
	if p.err != nil {
		p.t.Errorf("waiting with %d operations pending: %v", len(p.ops), p.err)
		return
	}
	n := p.q.Poll(p.done)
	if n == 0 && len(p.ops) > 0 {
		p.t.Errorf("Wait returned, and Poll has nothing")
	}
	for _, c := range p.done[:n] {
		p.check(c)
	}
}

// park is the queue's Wait, interrupted for Idle.
func (p *Pump) park() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p.Idle == nil {
		return p.q.Wait(ctx)
	}
	for {
		p.Idle()
		slice, end := context.WithTimeout(ctx, time.Millisecond)
		err := p.q.Wait(slice)
		end()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func (p *Pump) check(c device.Completion) {
	op := p.ops[c.Tag]
	if op == nil {
		p.t.Errorf("completion %+v of an operation that is not pending", c)
		return
	}
	if ok := c.Event == device.Done && !op.committed ||
		op.write && c.Event == device.Committed && !op.committed ||
		op.write && c.Event == device.Released && op.committed; !ok {
		p.t.Errorf("completion %+v: committed before: %v, a write: %v", c, op.committed, op.write)
	}
	if c.Err == nil && c.N != len(op.buf) {
		p.t.Errorf("completion %+v of %d bytes", c, len(op.buf))
	}
	if c.Event == device.Committed {
		op.committed = true
		if c.Err != nil {
			p.t.Errorf("committed with an error: %v", c.Err)
		}
		return
	}
	delete(p.ops, c.Tag)
	p.end(op, c.Err)
}

// end checks the result of an operation.
func (p *Pump) end(op *pumpOp, err error) {
	switch {
	case op.write:
		for i := range op.buf {
			op.buf[i] = 0xDB
		}
		if op.ended != nil {
			op.ended(err)
		}
		if err != nil && !p.tolerates(err) {
			p.t.Errorf("write of %d bytes at %d: %v", len(op.buf), op.addr, err)
		}
	case op.fails:
		if err == nil || op.target != nil && !errors.Is(err, op.target) {
			p.t.Errorf("read of %d bytes at %d: %v, want %v", len(op.buf), op.addr, err, op.target)
		}
	case errors.Is(err, device.ErrNotHeld) && op.addr < p.d.Begin(), err != nil && p.tolerates(err):
	case err != nil:
		p.t.Errorf("read of %d bytes at %d: %v", len(op.buf), op.addr, err)
	case !bytes.Equal(op.buf, op.want):
		p.t.Errorf(testrun.WrongMark+" read of %d bytes at %d: wrong bytes", len(op.buf), op.addr)
	}
}

func (p *Pump) tolerates(err error) bool { return p.Tolerate != nil && errors.Is(err, p.Tolerate) }
