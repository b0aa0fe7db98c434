package device

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
)

type cell = bench.Cell[Op]

// looper is the closed loop of one device, in one goroutine: loop or storeLoop.
type looper interface {
	// check returns an error if the device cannot do the cell's operations.
	check(x cell) error
	// slice runs one cell for that long, and until no operation is in flight.
	slice(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error)
	Close() error
}

// meter measures a cell by the loop of a device, or by fio.
type meter struct {
	cell
	loop looper
	fio  *fio

	cpu time.Duration // of this process
	ops uint64
}

func (t *meter) slice(ctx context.Context, lasts time.Duration) (bench.Sample, error) {
	if t.fio != nil {
		return t.fio.slice(ctx, t.cell, lasts)
	}
	before := machine.ProcessCPU()
	s, err := t.loop.slice(ctx, t.cell, lasts)
	t.cpu += machine.ProcessCPU() - before
	t.ops += s.Operations
	return s, err
}

// Run carries out a spec. progress may be nil.
func Run(ctx context.Context, spec Spec, progress bench.Progress) (_ *Report, err error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	b := &run{spec: &spec, report: &Report{Machine: machine.Describe(), Spec: spec}, loops: make(map[Op]looper), beside: make(map[Op]*fio)}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	var meters []*meter
	for _, x := range bench.Cells(spec.Ops, spec.Blocks, spec.Depths) {
		if err := b.loops[x.Op].check(x); err != nil {
			return nil, err
		}
		meters = append(meters, &meter{cell: x, loop: b.loops[x.Op]})
		if f := b.beside[x.Op]; f != nil {
			meters = append(meters, &meter{cell: x, fio: f})
		}
	}
	samples, err := bench.NewPlan(len(meters), spec.Duration).Run(ctx, progress,
		func(ctx context.Context, i, _ int, lasts time.Duration) (bench.Sample, error) {
			return meters[i].slice(ctx, lasts)
		})
	if err != nil {
		return nil, err
	}
	for i, t := range meters {
		if t.fio != nil {
			continue
		}
		var theirs []bench.Sample
		if i+1 < len(meters) && meters[i+1].fio != nil {
			theirs = samples[i+1]
		}
		ours, beside := median(samples[i], theirs)
		cpuUs := t.cpu.Seconds() * 1e6 / float64(max(t.ops, 1))
		b.report.Rows = append(b.report.Rows, newRow(&spec, t.cell, ours, beside, cpuUs))
	}
	return b.report, nil
}

// median returns the sample of the round that counts: if fio takes part, the one with the
// median ratio to fio's throughput, because the speed of a disk varies over time and
// neighbouring slices see the same; otherwise the one with the median throughput.
func median(ours, theirs []bench.Sample) (our bench.Sample, their *bench.Sample) {
	rounds := make([]int, len(ours))
	for i := range rounds {
		rounds[i] = i
	}
	round := bench.MedianBy(rounds, func(i *int) float64 {
		if theirs == nil {
			return ours[*i].Mops
		}
		return ours[*i].Mops / theirs[*i].Mops
	})
	if theirs != nil {
		their = &theirs[round]
	}
	return ours[round], their
}

// run has what is open during a Run: a separate device for each operation, so that the log
// of the reads does not change.
type run struct {
	spec   *Spec
	report *Report
	loops  map[Op]looper
	beside map[Op]*fio
}

func (b *run) open(ctx context.Context) error {
	program, err := findFio(ctx)
	if err != nil {
		return err
	}
	for _, op := range b.spec.Ops {
		if b.loops[op] != nil {
			continue
		}
		o, err := openDevice(ctx, b.spec, op)
		if err != nil {
			return err
		}
		if b.loops[op], err = newLooper(ctx, o, op, b.spec); err != nil {
			delete(b.loops, op)
			return fmt.Errorf("devicebench: device %s: %w", b.spec.Device, err)
		}
		b.report.Note = o.note
		if program == nil || b.spec.NoFio || o.segments == "" {
			continue
		}
		f := *program
		if err := b.giveFile(&f, op, o); err != nil {
			return err
		}
		b.beside[op], b.report.Fio = &f, f.version+", io_uring, "+f.way()
	}
	return nil
}

// newLooper makes a loop of the device, and closes the device if that fails.
func newLooper(ctx context.Context, o *opened, op Op, s *Spec) (looper, error) {
	if op == Store {
		return newStoreLoop(ctx, o, s)
	}
	return newLoop(ctx, o, op, s)
}

// growth is the ratio of fio's file to the log for Grow, so that a slice does not reach its
// end and start again on written blocks.
const growth = 4

// giveFile sets fio's file: the device's for reads, a separate one for writes.
func (b *run) giveFile(f *fio, op Op, o *opened) (err error) {
	f.size, f.file, f.sector = b.spec.Size, filepath.Join(b.spec.Dir, "fio-"+string(op)), o.sector
	switch op {
	case Write:
		return spread(f.file, f.size)
	case Grow:
		f.size, f.remake = growth*f.size, true
		return nil
	}
	f.file, err = b.segment(o)
	return err
}

// segment returns the only file of a device.
func (b *run) segment(o *opened) (string, error) {
	files, err := filepath.Glob(o.segments)
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%d files %s, want 1", len(files), o.segments)
	}
	if err != nil {
		return "", fmt.Errorf("devicebench: %w", err)
	}
	return files[0], nil
}

func (b *run) close() (err error) {
	for _, l := range b.loops {
		err = errors.Join(err, l.Close())
	}
	return err
}
