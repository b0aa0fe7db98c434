package device

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/dirs"
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
	if spec.Device == "ssd" {
		if err := machine.Room(spec.Dir, spec.files()); err != nil {
			return nil, fmt.Errorf("devicebench: %w", err)
		}
	}
	b := newRun(&spec)
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	var meters []*meter // of each cell: the device, then each fio beside it
	for _, x := range bench.Cells(spec.Ops, spec.Blocks, spec.Depths) {
		if err := b.loops[x.Op].check(x); err != nil {
			return nil, err
		}
		meters = append(meters, &meter{cell: x, loop: b.loops[x.Op]})
		for _, f := range b.beside[x.Op] {
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
	for i := 0; i < len(meters); {
		t, ours := meters[i], samples[i]
		row := newRow(&spec, t.cell, bench.MedianSample(ours), t.cpu.Seconds()*1e6/float64(max(t.ops, 1)))
		for i++; i < len(meters) && meters[i].fio != nil; i++ {
			row.beside(meters[i].fio, ours, samples[i])
		}
		b.report.Rows = append(b.report.Rows, row)
	}
	return b.report, nil
}

// run has what is open during a Run: a separate device for each operation, so that the log
// of the reads does not change.
type run struct {
	spec   *Spec
	report *Report
	loops  map[Op]looper
	beside map[Op][]*fio
	pages  *pages // of the fast fios; nil before there is one
}

func newRun(s *Spec) *run {
	return &run{spec: s, report: &Report{Machine: machine.Describe(), Spec: *s}, loops: make(map[Op]looper), beside: make(map[Op][]*fio)}
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
		plain := *program
		if err := b.giveFile(&plain, op, o); err != nil {
			return err
		}
		b.beside[op] = append([]*fio{&plain}, b.fastest(plain)...)
		b.report.Fio = fmt.Sprintf("%s, io_uring, %s; with its defaults, and fast: %s", plain.version, plain.way(), b.beside[op][1].fast.ways())
	}
	return nil
}

// fastest returns fio with the options of fast, for each of fastShares.
func (b *run) fastest(plain fio) (all []*fio) {
	bytes := 0 // in flight, of all operations
	for _, op := range b.spec.Ops {
		bytes = max(bytes, slices.Max(b.spec.Depths)*plain.block(cell{Op: op, Size: slices.Max(b.spec.Blocks)}))
	}
	if b.pages == nil {
		b.pages = hugePages(bytes)
	}
	for _, share := range fastShares {
		f := plain
		f.fast = &fast{share: share, pin: mayPin(bytes), pages: b.pages}
		all = append(all, &f)
	}
	return all
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
	files, err := dirs.Match(o.segments, "*.seg")
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%d segments in %s, want 1", len(files), o.segments)
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
	return errors.Join(err, b.pages.Close())
}
