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

type cell = bench.Cell[Op]

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
	cells := bench.Cells(spec.Ops, spec.Sizes, spec.Depths)
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
		report.Rows = append(report.Rows, row(&spec, cell, bench.MedianSample(samples[i])))
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
		return c, fmt.Errorf("%s answers with %d bytes, want %d: it is not redykv bench fabric --listen", addr, len(lent), tokenSize)
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
	need := int64(x.Size)
	if x.Op == Message {
		need *= int64(x.Depth)
	}
	if need > c.remote.Size {
		return fmt.Errorf("%d operations (%s) of %d bytes: the other side lends %d", x.Depth, x.Op, x.Size, c.remote.Size)
	}
	return nil
}

// Slice measures an operation for that long, and then waits until none is in flight.
func (c *Client) Slice(ctx context.Context, op Op, size, depth int, lasts time.Duration) (bench.Sample, error) {
	x := cell{Op: op, Size: size, Depth: depth}
	if err := c.check(x); err != nil {
		return bench.Sample{}, err
	}
	return c.slice(ctx, x, lasts)
}

// slice runs one cell for that long, and until no operation is in flight.
func (c *Client) slice(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error) {
	writes, _ := x.Op.Writes() // a message is none
	c.free = bench.AllTags(c.free, x.Depth)
	return c.meter.Run(ctx, x.Depth, lasts, func() error { return c.start(x, uint64(writes)) },
		func(ctx context.Context) error { return c.finish(ctx, x) }, func() int { return len(c.free) })
}

// start enqueues an operation for each free tag, writes out of 100 of them writes, and rings
// the doorbell.
func (c *Client) start(x cell, writes uint64) error {
	places := uint64(c.remote.Size) / uint64(x.Size)
	for _, tag := range c.free {
		buf := c.local.Bytes()[int(tag)*x.Size:][:x.Size]
		var err error
		switch {
		case x.Op == Message:
			err = c.q.WriteImm(buf, c.remote, int64(tag)*int64(x.Size), uint32(tag), tag)
		case writes == 100 || writes > 0 && bench.Draw(c.rng, 100) < writes:
			err = c.q.Write(buf, c.remote, int64(bench.Draw(c.rng, places)*uint64(x.Size)), tag)
		default:
			err = c.q.Read(buf, c.remote, int64(bench.Draw(c.rng, places)*uint64(x.Size)), tag)
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", x.Op, x.Size, err)
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
			return fmt.Errorf("%s of %d bytes: %w", x.Op, x.Size, d.Err)
		}
		tag := d.Tag
		if d.Op == fabric.OpRecv {
			if tag = uint64(d.Imm); x.Op != Message || tag >= uint64(x.Depth) {
				return fmt.Errorf("answer to message %d, which was not sent", tag)
			}
		}
		if x.Op == Message {
			if c.halves[tag] = !c.halves[tag]; c.halves[tag] {
				continue // its completion or its answer is missing
			}
		}
		c.meter.Completed(tag)
		c.free = append(c.free, tag)
	}
	return nil
}
