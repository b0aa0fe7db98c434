package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Preview is a device, to be read only, with the log that [Snapshots] will write.
type Preview struct {
	device.Device
	log manifest.RestoredLog // its files are the queues' own
}

// NewPreview reads a chain of snapshots, oldest first. The arguments are those of Snapshots.
func NewPreview(dev device.Device, chain []manifest.LogPart, tail int64) (*Preview, error) {
	p := &Preview{Device: dev, log: manifest.RestoredLog{Flushed: start(dev, chain, tail)}}
	for _, s := range chain {
		if err := p.log.Add(dev, s); err != nil {
			p.CloseSnapshots()
			return nil, err
		}
	}
	return p, nil
}

// CloseSnapshots closes the snapshots' objects, but not the device.
func (p *Preview) CloseSnapshots() { p.log.Close() }

// NewQueue implements device.Device.
func (p *Preview) NewQueue(depth int) (device.Queue, error) {
	below, err := p.Device.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	alone, err := p.Device.NewQueue(1)
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	log := p.log
	log.Files = queueReader{alone}
	return &previewQueue{Queue: below, alone: alone, log: log}, nil
}

// previewQueue answers reads that reach into snapshots at once, and passes other reads on.
type previewQueue struct {
	device.Queue
	alone device.Queue // of log
	log   manifest.RestoredLog
	done  []device.Completion
}

// Read implements device.Queue.
func (q *previewQueue) Read(dst []byte, addr int64, tag uint64) error {
	if addr+int64(len(dst)) <= q.log.Flushed {
		return q.Queue.Read(dst, addr, tag)
	}
	n, err := q.log.ReadAt(dst, addr)
	q.done = append(q.done, device.Completion{Tag: tag, N: n, Err: err})
	return nil
}

// Write implements device.Queue. A rehearsal writes nothing.
func (q *previewQueue) Write(src []byte, addr int64, _ uint64) error {
	return fmt.Errorf("writing %d bytes at %d to a preview of the log: %w", len(src), addr, errors.ErrUnsupported)
}

// Poll implements device.Queue.
func (q *previewQueue) Poll(done []device.Completion) int {
	n := copy(done, q.done)
	q.done = q.done[n:]
	if n == len(done) {
		return n
	}
	return n + q.Queue.Poll(done[n:])
}

// Wait implements device.Queue.
func (q *previewQueue) Wait(ctx context.Context) error {
	if len(q.done) > 0 {
		return nil
	}
	return q.Queue.Wait(ctx)
}

// Close implements device.Queue.
func (q *previewQueue) Close() error { return errors.Join(q.Queue.Close(), q.alone.Close()) }

// queueReader reads through a queue of its own.
type queueReader struct{ queue device.Queue }

// ReadAt implements io.ReaderAt.
func (r queueReader) ReadAt(p []byte, addr int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := device.Finish(context.Background(), r.queue, r.queue.Read(p, addr, 0)); err != nil {
		return 0, fmt.Errorf("reading %d bytes at %d: %w", len(p), addr, err)
	}
	return len(p), nil
}
