package paper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// copies is a device that keeps the same log on several devices. A write goes to all of them;
// a read goes to the one that was selected when its queue was created. A store that is loaded
// once can so be read from each device in turn.
//
// Metadata and objects are on the first device only.
type copies struct {
	device.Device // the first of all
	all           []device.Device
	selected      atomic.Int32
}

func (c *copies) add(d device.Device) {
	c.all = append(c.all, d)
	c.Device = c.all[0]
}

// Start implements device.Device.
func (c *copies) Start(tail int64) error {
	return c.each(func(d device.Device) error { return d.Start(tail) })
}

// each calls do for every device and stops at the first error.
func (c *copies) each(do func(device.Device) error) error {
	for _, d := range c.all {
		if err := do(d); err != nil {
			return err
		}
	}
	return nil
}

// Parts implements device.Composite.
func (c *copies) Parts() (parts []any) {
	for _, d := range c.all {
		parts = append(parts, d)
	}
	return parts
}

// NewQueue implements device.Device.
func (c *copies) NewQueue(depth int) (device.Queue, error) {
	reads, err := c.all[c.selected.Load()].NewQueue(depth)
	if err != nil {
		return nil, err
	}
	return &copiesQueue{Queue: reads, copies: c, depth: depth}, nil
}

// Alignment implements device.Device. It is the largest alignment of all devices.
func (c *copies) Alignment() int {
	align := 1
	for _, d := range c.all {
		align = max(align, d.Alignment())
	}
	return align
}

// Begin implements device.Device. It is the address from which all devices hold the log.
func (c *copies) Begin() int64 {
	begin := int64(0)
	for _, d := range c.all {
		begin = max(begin, d.Begin())
	}
	return begin
}

// Truncate implements device.Device.
func (c *copies) Truncate(begin int64) error {
	return c.each(func(d device.Device) error { return d.Truncate(begin) })
}

// Sync implements device.Device.
func (c *copies) Sync() error { return c.each(device.Device.Sync) }

// Close implements device.Device.
func (c *copies) Close() error {
	var err error
	for _, d := range c.all {
		err = errors.Join(err, d.Close())
	}
	return err
}

// copiesQueue embeds the queue of the selected device, which serves reads at no extra cost
// while nothing is written. The first write opens a queue on every device.
type copiesQueue struct {
	device.Queue
	copies *copies
	depth  int

	writers []device.Queue      // one per device; nil until the first write
	writes  []copiedWrite       // pending writes; the devices get the index as their tag
	free    []uint64            // free indexes of writes
	ended   []device.Completion // writes that all devices have completed
}

// copiedWrite is a write that at least one device has not completed.
type copiedWrite struct {
	tag  uint64
	size int
	left int
	err  error
}

// Write implements device.Queue.
func (q *copiesQueue) Write(src []byte, addr int64, tag uint64) error {
	if q.writers == nil {
		if err := q.open(); err != nil {
			return err
		}
	}
	if len(q.free) == 0 {
		return device.ErrQueueFull
	}
	at := q.free[len(q.free)-1]
	w := &q.writes[at]
	*w = copiedWrite{tag: tag, size: len(src)}
	for i, writer := range q.writers {
		err := writer.Write(src, addr, at)
		switch {
		case err == nil:
			w.left++
		case w.left == 0 && i == 0:
			return err
		default: // other devices have accepted the write: it fails when they complete it
			w.err = errors.Join(w.err, err)
		}
	}
	q.free = q.free[:len(q.free)-1]
	return nil
}

func (q *copiesQueue) open() error {
	var writers []device.Queue
	for _, d := range q.copies.all {
		writer, err := d.NewQueue(q.depth)
		if err != nil {
			for _, w := range writers {
				err = errors.Join(err, w.Close())
			}
			return fmt.Errorf("queue for writes: %w", err)
		}
		writers = append(writers, writer)
	}
	q.writers, q.writes = writers, make([]copiedWrite, q.depth)
	for at := range q.writes {
		q.free = append(q.free, uint64(at))
	}
	return nil
}

// Submit implements device.Queue.
func (q *copiesQueue) Submit() error {
	err := q.Queue.Submit()
	for _, w := range q.writers {
		err = errors.Join(err, w.Submit())
	}
	return err
}

// Poll implements device.Queue.
func (q *copiesQueue) Poll(done []device.Completion) int {
	n := q.Queue.Poll(done)
	if q.writers == nil {
		return n
	}
	q.collect()
	ended := copy(done[n:], q.ended)
	q.ended = q.ended[:copy(q.ended, q.ended[ended:])]
	return n + ended
}

// collect polls all devices for completed writes.
func (q *copiesQueue) collect() {
	var some [16]device.Completion
	for _, writer := range q.writers {
		for n := len(some); n == len(some); {
			n = writer.Poll(some[:])
			for _, c := range some[:n] {
				w := &q.writes[c.Tag]
				w.err = errors.Join(w.err, c.Err)
				if c.Event == device.Committed {
					continue // the Released completion follows
				}
				if w.left--; w.left > 0 {
					continue
				}
				end := device.Completion{Tag: w.tag, Err: w.err}
				if w.err == nil {
					end.N = w.size
				}
				q.ended, q.free = append(q.ended, end), append(q.free, c.Tag)
			}
		}
	}
}

// Wait implements device.Queue. While writes are pending it waits for one of them; completions
// of reads are then found later.
func (q *copiesQueue) Wait(ctx context.Context) error {
	for q.writers != nil {
		q.collect()
		if len(q.ended) > 0 {
			return nil
		}
		if len(q.free) == q.depth {
			break
		}
		for _, writer := range q.writers { // returns at once if nothing is pending
			if err := writer.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return q.Queue.Wait(ctx)
}

// Close implements device.Queue.
func (q *copiesQueue) Close() error {
	err := q.Queue.Close()
	for _, w := range q.writers {
		err = errors.Join(err, w.Close())
	}
	return err
}
