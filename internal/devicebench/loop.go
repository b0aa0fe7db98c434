package devicebench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
)

// memoryAlign is what fio's buffers are aligned to as well.
const memoryAlign = 4096

// loop is the closed loop of one device, of one goroutine.
type loop struct {
	*opened
	q     device.Queue
	size  int64
	tail  int64 // of the log
	cut   int64 // its begin
	rng   *rand.PCG
	meter *bench.Meter
	mem   []byte // a block for each operation in flight
	free  []uint64
	done  []device.Completion
}

// newLoop starts a device with a log of the size of s in it.
func newLoop(ctx context.Context, o *opened, s *Spec) (*loop, error) {
	depth, block := slices.Max(s.Depths), slices.Max(s.Blocks)
	l := &loop{
		opened: o, size: s.Size, rng: rand.NewPCG(1, 2), meter: bench.NewMeter(depth),
		mem: device.AlignedBuffer(depth*block, max(memoryAlign, o.Alignment())), done: make([]device.Completion, s.Batch),
	}
	_, _ = rand.NewChaCha8([32]byte{2}).Read(l.mem) // never fails
	err := o.Start(0)
	if err == nil {
		l.q, err = o.NewQueue(max(depth, fillDepth))
	}
	if err == nil {
		err = l.fill(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return l, nil
}

const (
	fillBlock = 1 << 20
	fillDepth = 8
)

// fill writes the log: bytes that nothing between here and the disk can make less of.
func (l *loop) fill(ctx context.Context) error {
	src := device.AlignedBuffer(fillBlock, max(memoryAlign, l.Alignment()))
	_, _ = rand.NewChaCha8([32]byte{1}).Read(src) // never fails
	for under := 0; l.tail < l.size || under > 0; {
		if l.tail < l.size && under < fillDepth {
			if err := l.q.Write(src[:min(fillBlock, l.size-l.tail)], l.tail, 0); err != nil {
				return err
			}
			l.tail += fillBlock
			under++
			continue
		}
		n, err := l.poll(ctx)
		if err != nil {
			return err
		}
		under -= n
	}
	return l.Sync()
}

// Close closes the device.
func (l *loop) Close() error {
	if err := l.q.Close(); err != nil {
		return err
	}
	return l.opened.Close()
}

func (l *loop) check(x cell) error {
	if align := l.Alignment(); x.op == Write && x.block%align != 0 {
		return fmt.Errorf("write of %d bytes: the device writes multiples of %d", x.block, align)
	}
	return nil
}

func (l *loop) slice(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error) {
	l.free = l.free[:0]
	for tag := range uint64(x.depth) {
		l.free = append(l.free, tag)
	}
	if x.op == Write {
		block := int64(x.block) // that of the slice before may have been another
		l.tail = (l.tail + block - 1) / block * block
	}
	l.meter.Begin(x.depth, lasts)
	for l.meter.Turn(ctx) {
		if err := l.start(x); err != nil {
			return bench.Sample{}, err
		}
		if err := l.finish(ctx); err != nil {
			return bench.Sample{}, err
		}
	}
	sample := l.meter.End()
	for len(l.free) < x.depth {
		if err := l.finish(ctx); err != nil {
			return bench.Sample{}, err
		}
	}
	return sample, nil
}

// start enqueues as many operations as are free and rings the bell.
func (l *loop) start(x cell) error {
	blocks := uint64(l.size) / uint64(x.block)
	for _, tag := range l.free {
		buf := l.mem[int(tag)*x.block:][:x.block]
		var err error
		if x.op == Read {
			err = l.q.Read(buf, int64(l.draw(blocks)*uint64(x.block)), tag)
		} else {
			err = l.append(buf, tag)
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", x.op, x.block, err)
		}
		l.meter.Issued(tag)
	}
	l.free = l.free[:0]
	return l.q.Submit()
}

// append writes at the end of the log, and cuts it off behind now and then.
func (l *loop) append(src []byte, tag uint64) error {
	if l.tail-l.cut > 2*l.size {
		l.cut = l.tail - l.size
		if err := l.Truncate(l.cut); err != nil {
			return err
		}
	}
	at := l.tail
	l.tail += int64(len(src))
	return l.q.Write(src, at, tag)
}

// draw is a number below n, which is less than 2^32.
func (l *loop) draw(n uint64) uint64 { return l.rng.Uint64() >> 32 * n >> 32 }

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
