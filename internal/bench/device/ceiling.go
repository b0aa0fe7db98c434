package device

import (
	"context"
	"errors"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/ssdtier"
	"github.com/redykv/redykv/ycsb"
)

// Ceiling measures the most that a disk does under one load, in the same ways as a Run of device
// ssd: by the device alone, and by fio if it is installed.
type Ceiling struct {
	run    *run
	meters []*meter
	cell   cell // with the greatest depth
}

// OpenCeiling makes a log of at least the load's size in an empty directory.
func OpenCeiling(ctx context.Context, dir string, load ycsb.DiskLoad) (_ *Ceiling, err error) {
	x := cell{Op: Read, Size: load.Block, Depth: min(load.Depth, MaxDepth)}
	if load.Writes {
		x.Op = Write
	}
	spec := Spec{
		Device: "ssd", Ops: []Op{x.Op}, Blocks: []int{x.Size}, Depths: []int{x.Depth},
		Duration: bench.MinDuration, Dir: dir, Engine: ssdtier.EngineAuto, Verify: ssdtier.VerifyAll, Net: "none",
	}
	size := max(load.Size, MinSize, 4*int64(x.Size)*int64(x.Depth))
	spec.Size = (size + fillBlock - 1) / fillBlock * fillBlock // whole blocks are written
	if err := spec.Check(); err != nil {
		return nil, err
	}
	c := &Ceiling{run: newRun(&spec), cell: x}
	if err := c.run.open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.meters = append(c.meters, &meter{loop: c.run.loops[x.Op]})
	for _, f := range c.run.beside[x.Op] {
		c.meters = append(c.meters, &meter{fio: f})
	}
	return c, nil
}

// Ways names the ways of measuring with depth operations in flight, in the order of Measure's
// samples.
func (c *Ceiling) Ways(depth int) (names []string) {
	for _, m := range c.meters {
		if m.fio == nil {
			names = append(names, "the ssd device")
		} else {
			names = append(names, m.fio.name(c.depth(depth)))
		}
	}
	return names
}

// depth returns the number in flight for which a queue of the device is wanted.
func (c *Ceiling) depth(wanted int) int { return min(wanted, c.cell.Depth) }

// Measure operates for that long in each way, with depth operations in flight, or as many as a
// queue of the device may have.
func (c *Ceiling) Measure(ctx context.Context, depth int, lasts time.Duration) (samples []bench.Sample, err error) {
	for _, m := range c.meters {
		m.cell = c.cell
		m.Depth = c.depth(depth)
		s, err := m.slice(ctx, lasts)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, ctx.Err()
}

// Close closes the device.
func (c *Ceiling) Close() error { return c.run.close() }
