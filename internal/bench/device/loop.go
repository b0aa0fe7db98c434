package device

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
)

// memoryAlign is the alignment of buffers, as in fio.
const memoryAlign = 4096

// loop is the closed loop of one device, in one goroutine.
type loop struct {
	*opened
	q     device.Queue
	size  int64
	tail  int64      // of the log
	cut   int64      // its begin
	cuts  chan error // the result of the pending Truncate; nil if there is none
	rng   *rand.PCG
	meter *bench.Meter
	mem   []byte // a block for each operation in flight; huge pages, as the log's frames are
	free  []uint64
	done  []device.Completion
}

// newLoop starts a device with a log of the spec's size. For Write on files the log has been
// truncated already, so that the files to write to were written before.
func newLoop(ctx context.Context, o *opened, op Op, s *Spec) (*loop, error) {
	depth, block := slices.Max(s.Depths), slices.Max(s.Blocks)
	l := &loop{
		opened: o, size: s.Size, rng: rand.NewPCG(1, 2), meter: bench.NewMeter(depth),
		done: make([]device.Completion, s.batch(op)),
	}
	err := o.Start(0)
	if err == nil {
		l.mem, err = mem.Alloc(max(depth*block, mem.HugePage))
	}
	if err == nil {
		_, _ = rand.NewChaCha8([32]byte{2}).Read(l.mem) // never fails
		l.q, err = o.NewQueue(max(depth, fillDepth))
	}
	if err == nil {
		size := s.Size
		if op == Write && o.segments != "" {
			size += 3 * size / cutShare
		}
		err = l.fill(ctx, size)
	}
	if err != nil {
		if l.q != nil {
			err = errors.Join(err, l.q.Close())
		}
		return nil, errors.Join(err, l.freeMemory(), o.Close())
	}
	return l, nil
}

func (l *loop) freeMemory() error {
	if l.mem == nil {
		return nil
	}
	return mem.Free(l.mem)
}

const (
	fillBlock = 1 << 20
	fillDepth = 8
)

// fill writes a log of a size, of bytes that no layer can compress.
func (l *loop) fill(ctx context.Context, size int64) error {
	src := device.AlignedBuffer(fillBlock, max(memoryAlign, l.Alignment()))
	_, _ = rand.NewChaCha8([32]byte{1}).Read(src) // never fails
	for pending := 0; l.tail < size || pending > 0; {
		if l.tail < size && pending < fillDepth {
			if err := l.append(src[:min(fillBlock, size-l.tail)], 0); err != nil {
				return err
			}
			pending++
			continue
		}
		n, err := l.poll(ctx)
		if err != nil {
			return err
		}
		pending -= n
	}
	return errors.Join(l.endCut(), l.Sync())
}

// Close closes the device.
func (l *loop) Close() error {
	if err := errors.Join(l.endCut(), l.q.Close()); err != nil {
		return err
	}
	return errors.Join(l.freeMemory(), l.opened.Close())
}

func (l *loop) check(x cell) error {
	if align := l.Alignment(); x.Op.writes() && x.Size%align != 0 {
		return fmt.Errorf("write of %d bytes: the device writes multiples of %d", x.Size, align)
	}
	return nil
}

func (l *loop) slice(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error) {
	l.free = bench.AllTags(l.free, x.Depth)
	if x.Op.writes() {
		block := int64(x.Size) // the previous slice may have had another block size
		l.tail = (l.tail + block - 1) / block * block
	}
	return l.meter.Run(ctx, x.Depth, lasts, func() error { return l.start(x) }, l.finish, func() int { return len(l.free) })
}

// start enqueues an operation for each free tag and rings the doorbell.
func (l *loop) start(x cell) error {
	blocks := uint64(l.size) / uint64(x.Size)
	for _, tag := range l.free {
		buf := l.mem[int(tag)*x.Size:][:x.Size]
		var err error
		if x.Op == Read {
			err = l.q.Read(buf, int64(bench.Draw(l.rng, blocks)*uint64(x.Size)), tag)
		} else {
			err = l.append(buf, tag)
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", x.Op, x.Size, err)
		}
		l.meter.Issued(tag)
	}
	l.free = l.free[:0]
	return l.q.Submit()
}

// cutShare is the ratio of the log's size to what one Truncate removes.
const cutShare = 4

// append writes at the end of the log. Like a store, it truncates the log now and then in
// another goroutine.
func (l *loop) append(src []byte, tag uint64) error {
	if l.tail-l.cut > l.size+l.size/cutShare {
		if err := l.endCut(); err != nil {
			return err
		}
		l.cut = l.tail - l.size
		ended := make(chan error, 1)
		go func(begin int64) { ended <- l.Truncate(begin) }(l.cut)
		l.cuts = ended
	}
	at := l.tail
	l.tail += int64(len(src))
	return l.q.Write(src, at, tag)
}

// endCut waits for the pending Truncate.
func (l *loop) endCut() error {
	if l.cuts == nil {
		return nil
	}
	err := <-l.cuts
	l.cuts = nil
	return err
}

// finish waits for completions.
func (l *loop) finish(ctx context.Context) error {
	n, err := l.poll(ctx)
	for _, c := range l.done[:n] {
		l.meter.Completed(c.Tag)
		l.free = append(l.free, c.Tag)
	}
	return err
}

// poll waits until there are completions in done.
func (l *loop) poll(ctx context.Context) (n int, err error) {
	for n == 0 {
		if n = l.q.Poll(l.done); n == 0 {
			if err := l.q.Wait(ctx); err != nil {
				return 0, err
			}
		}
	}
	for _, c := range l.done[:n] {
		if c.Err != nil {
			return 0, c.Err
		}
	}
	return n, nil
}
