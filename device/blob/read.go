package blob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// counts are the counters of Status.
type counts struct {
	bucketReads, bytesDown, bytesUp, uploads, retries, repairs atomic.Uint64
}

// storage reads the parts of the log that the local device cannot answer. It implements
// blocking.Storage, on goroutines of the engine.
type storage struct{ d *Device }

// ReadAt fills dst from an address: from the bucket below the local device's Begin, and where
// the local device fails.
func (s storage) ReadAt(dst []byte, addr int64) error {
	return s.d.read(context.Background(), dst, addr)
}

// WriteAt is not called: the local device's queue writes.
func (s storage) WriteAt([]byte, int64) error { return errors.ErrUnsupported }

// read fills dst from an address of the log.
func (d *Device) read(ctx context.Context, dst []byte, addr int64) error {
	if begin := d.begin.Load(); addr < begin {
		return fmt.Errorf("blob: %d bytes at %d, below the begin %d: %w", len(dst), addr, begin, device.ErrNotHeld)
	}
	if begin := d.local.Begin(); addr < begin {
		n := min(int64(len(dst)), begin-addr)
		if err := d.readBucket(ctx, dst[:n], addr); err != nil {
			return err
		}
		if dst, addr = dst[n:], addr+n; len(dst) == 0 {
			return nil
		}
	}
	localErr := d.lone.read(ctx, d.local, dst, addr)
	if localErr == nil {
		return nil
	}
	if err := d.readBucket(ctx, dst, addr); err != nil {
		return errors.Join(localErr, err)
	}
	if d.counts.repairs.Add(1) == 1 || errors.Is(localErr, device.ErrCorrupt) {
		d.opts.Logger.Warn("a read failed on the local device and was answered from the bucket", "bytes", len(dst), "addr", addr, "err", localErr)
	}
	return nil
}

// readBucket fills dst from the bucket.
func (d *Device) readBucket(ctx context.Context, dst []byte, addr int64) error {
	for len(dst) > 0 {
		c := d.catalog.Load()
		if c == nil {
			return fmt.Errorf("blob: %d bytes at %d: the bucket was not reachable since the device was opened", len(dst), addr)
		}
		p, ok := c.find(addr)
		if !ok {
			return fmt.Errorf("blob: the bucket does not hold address %d: %w", addr, device.ErrNotHeld)
		}
		n := min(int64(len(dst)), p.To-addr)
		err := d.bucket.readPacked(ctx, p.Key, p.From, p.Stored, dst[:n], addr)
		if notFound(err) && d.catalog.Load() != c {
			continue // a newer state has replaced it
		}
		if err != nil {
			return err
		}
		d.counts.bucketReads.Add(1)
		d.counts.bytesDown.Add(uint64(n))
		dst, addr = dst[n:], addr+n
	}
	return nil
}

// loneQueues are queues of the local device for one operation at a time.
type loneQueues struct {
	mu   sync.Mutex
	idle []device.Queue
}

// read fills dst from an address of a device.
func (l *loneQueues) read(ctx context.Context, dev device.Device, dst []byte, addr int64) error {
	q, err := l.get(dev)
	if err != nil {
		return err
	}
	var done [1]device.Completion
	err = q.Read(dst, addr, 0)
	if err == nil {
		err = q.Submit()
	}
	for err == nil && q.Poll(done[:]) == 0 {
		err = q.Wait(ctx)
	}
	if err != nil {
		return errors.Join(err, q.Close()) // the read may be pending
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, q)
	return done[0].Err
}

func (l *loneQueues) get(dev device.Device) (device.Queue, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.idle); n > 0 {
		q := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return q, nil
	}
	return dev.NewQueue(1)
}

func (l *loneQueues) close() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.idle {
		err = errors.Join(err, q.Close())
	}
	l.idle = nil
	return err
}
