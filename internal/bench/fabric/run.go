package fabric

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
)

// cell is one combination to measure.
type cell struct {
	op          Op
	size, depth int
}

// plan returns the cells of a spec.
func plan(s *Spec) (cells []cell) {
	for _, op := range s.Ops {
		for _, size := range s.Sizes {
			for _, depth := range s.Depths {
				cells = append(cells, cell{op, size, depth})
			}
		}
	}
	return cells
}

// Run carries out a spec between p and the side that serves at addr. progress may be nil.
func Run(ctx context.Context, p fabric.Provider, addr string, spec Spec, progress bench.Progress) (*Report, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	c, err := Dial(ctx, p, addr, &spec)
	if err != nil {
		return nil, err
	}
	report := &Report{Machine: machine.Describe(), Spec: spec, Memory: c.remote.Size}
	cells := plan(&spec)
	for _, cell := range cells {
		if err = c.check(cell); err != nil {
			break
		}
	}
	var samples [][]bench.Sample
	if err == nil {
		samples, err = bench.NewPlan(len(cells), spec.Duration).Run(ctx, progress,
			func(ctx context.Context, i, _ int, lasts time.Duration) (bench.Sample, error) {
				return c.slice(ctx, cells[i], lasts)
			})
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	for i, cell := range cells {
		report.Rows = append(report.Rows, row(&spec, cell, bench.SecondFastest(samples[i])))
	}
	return report, nil
}

// Client is the measuring side. It belongs to one goroutine.
type Client struct {
	q      fabric.QueuePair
	remote fabric.Remote
	local  fabric.Region // buffers of operations: one of the largest size for each in flight
	answer fabric.Region // to messages
	idle   Idle
	rng    *rand.PCG
	meter  *bench.Meter
	free   []uint64 // tags
	halves []bool   // by tag: either the completion or the answer of a message has arrived
	done   []fabric.Completion
}

// Dial connects to the side that serves at addr, for operations of up to the sizes and
// depths of spec.
func Dial(ctx context.Context, p fabric.Provider, addr string, spec *Spec) (c *Client, err error) {
	p = fabric.WithModel(p, spec.Model)
	depth, size := slices.Max(spec.Depths), slices.Max(spec.Sizes)
	c = &Client{idle: spec.Idle, rng: rand.NewPCG(1, 2), meter: bench.NewMeter(depth), halves: make([]bool, depth), done: make([]fabric.Completion, min(depth, 256))}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.local, err = p.Alloc(depth * size); err != nil {
		return c, err
	}
	if c.answer, err = p.Alloc(depth * size); err != nil {
		return c, err
	}
	if c.q, err = p.Dial(ctx, addr, encodeHello(c.answer.Token(), spec.Idle), depth); err != nil {
		return c, err
	}
	lent := c.q.PeerPrivate()
	if len(lent) != tokenSize {
		return c, fmt.Errorf("%s answers with %d bytes, want %d: no measurement", addr, len(lent), tokenSize)
	}
	c.remote, err = c.q.Import(ctx, fabric.Token(lent))
	return c, err
}

// Close ends the connection.
func (c *Client) Close() (err error) {
	if c.q != nil {
		err = c.q.Close()
	}
	for _, r := range []fabric.Region{c.local, c.answer} {
		if r != nil {
			err = errors.Join(err, r.Close())
		}
	}
	return err
}

// check returns an error if the operations do not fit into the region.
func (c *Client) check(x cell) error {
	need := int64(x.size)
	if x.op == Message {
		need *= int64(x.depth)
	}
	if need > c.remote.Size {
		return fmt.Errorf("%d operations (%s) of %d bytes: the other side lends %d", x.depth, x.op, x.size, c.remote.Size)
	}
	return nil
}

// Slice measures an operation for that long, and then waits until none is in flight.
func (c *Client) Slice(ctx context.Context, op Op, size, depth int, lasts time.Duration) (bench.Sample, error) {
	x := cell{op, size, depth}
	if err := c.check(x); err != nil {
		return bench.Sample{}, err
	}
	return c.slice(ctx, x, lasts)
}

// slice runs one cell for that long, and until no operation is in flight.
func (c *Client) slice(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error) {
	writes, _ := x.op.Writes() // a message is none
	c.free = bench.AllTags(c.free, x.depth)
	return c.meter.Run(ctx, x.depth, lasts, func() error { return c.start(x, uint64(writes)) },
		func(ctx context.Context) error { return c.finish(ctx, x) }, func() int { return len(c.free) })
}

// start enqueues an operation for each free tag, writes out of 100 of them writes, and rings
// the doorbell.
func (c *Client) start(x cell, writes uint64) error {
	places := uint64(c.remote.Size) / uint64(x.size)
	for _, tag := range c.free {
		buf := c.local.Bytes()[int(tag)*x.size:][:x.size]
		var err error
		switch {
		case x.op == Message:
			err = c.q.WriteImm(buf, c.remote, int64(tag)*int64(x.size), uint32(tag), tag)
		case writes == 100 || writes > 0 && bench.Draw(c.rng, 100) < writes:
			err = c.q.Write(buf, c.remote, int64(bench.Draw(c.rng, places)*uint64(x.size)), tag)
		default:
			err = c.q.Read(buf, c.remote, int64(bench.Draw(c.rng, places)*uint64(x.size)), tag)
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", x.op, x.size, err)
		}
		c.meter.Issued(tag)
	}
	c.free = c.free[:0]
	return c.q.Submit()
}

// finish waits for completions.
func (c *Client) finish(ctx context.Context, x cell) error {
	n := c.q.Poll(c.done)
	for spins := 1; n == 0; spins++ {
		var err error
		switch {
		case c.idle == Wait:
			err = c.q.Wait(ctx)
		case spins%1024 == 0:
			err = errors.Join(ctx.Err(), c.q.Err())
		}
		if err != nil {
			return err
		}
		n = c.q.Poll(c.done)
	}
	for i := range c.done[:n] {
		d := &c.done[i]
		if d.Err != nil {
			return fmt.Errorf("%s of %d bytes: %w", x.op, x.size, d.Err)
		}
		tag := d.Tag
		if d.Op == fabric.OpRecv {
			if tag = uint64(d.Imm); x.op != Message || tag >= uint64(x.depth) {
				return fmt.Errorf("answer to message %d, which was not sent", tag)
			}
		}
		if x.op == Message {
			if c.halves[tag] = !c.halves[tag]; c.halves[tag] {
				continue // its completion or its answer is missing
			}
		}
		c.meter.Completed(tag)
		c.free = append(c.free, tag)
	}
	return nil
}
