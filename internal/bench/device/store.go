package device

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

const (
	// recordOverhead is the size of a record without its value: a header and a key.
	recordOverhead = 8 + ycsb.KeySize
	minRecord      = recordOverhead + 8
	maxRecord      = 64 << 10
	minMemory      = 16 * maxRecord // of a store
	// coldShare is the ratio of a store's log to its memory.
	coldShare = 16
)

// storeLoop is the closed loop of a store on a device: reads of random records through one
// session. Reads that memory answered do not count.
type storeLoop struct {
	*opened
	store   *kv.Store
	record  int // bytes
	records uint64
	rng     *rand.PCG
	meter   *bench.Meter
	session *kv.Session // of the depth measured last
	depth   int
	tags    map[*kv.Op]uint64
	free    []*kv.Op
	done    []*kv.Op
}

// newStoreLoop makes a store with a log of the spec's size.
func newStoreLoop(ctx context.Context, o *opened, s *Spec) (_ *storeLoop, err error) {
	l := &storeLoop{opened: o, record: s.Blocks[0], rng: rand.NewPCG(3, 4), meter: bench.NewMeter(slices.Max(s.Depths)), done: make([]*kv.Op, s.batch(Store))}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	l.records = uint64(s.Size) / uint64(l.record)
	shape := ycsb.Shape{
		Records: int64(l.records), ValueSize: l.record - recordOverhead,
		Memory: max(s.Size/coldShare, minMemory), Depth: slices.Max(s.Depths),
	}
	l.store, err = kv.Open(kv.Options{
		Device: o.Device, Memory: shape.Memory, KeySize: ycsb.KeySize, ValueSize: shape.ValueSize,
		Records: shape.Records, QueueDepth: shape.Depth,
	})
	if err != nil {
		return nil, err
	}
	// From here on the store owns the device.
	if err := ycsb.Load(ctx, l.store, shape, 1, nil); err != nil {
		return nil, errors.Join(err, l.store.Close())
	}
	return l, nil
}

// Close closes the store, and its device with it.
func (l *storeLoop) Close() error {
	err := l.leave()
	if err = errors.Join(err, l.store.Close()); l.stop != nil {
		err = errors.Join(err, l.stop())
	}
	return err
}

// leave closes the session.
func (l *storeLoop) leave() error {
	if l.session == nil {
		return nil
	}
	err := l.session.Close()
	l.session = nil
	return err
}

func (l *storeLoop) check(cell) error { return nil }

func (l *storeLoop) slice(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error) {
	if err := l.enter(x.Depth); err != nil {
		return bench.Sample{}, err
	}
	before := l.store.Metrics()
	sample, err := l.meter.Run(ctx, x.Depth, lasts, l.start, l.finish, func() int { return len(l.free) })
	if err != nil {
		return bench.Sample{}, err
	}
	// A session counts its last few operations late, so only shares are meaningful.
	after := l.store.Metrics()
	memory, cold := after.ReadsFrom.Memory-before.ReadsFrom.Memory, after.ReadsFrom.Tier[0]-before.ReadsFrom.Tier[0]
	share := float64(cold) / float64(max(memory+cold, 1))
	sample.Operations = uint64(share * float64(sample.Operations))
	sample.Mops *= share
	return sample, nil
}

// enter opens a session for that many pending reads.
func (l *storeLoop) enter(depth int) error {
	if l.session != nil && l.depth == depth {
		return nil
	}
	if err := l.leave(); err != nil {
		return err
	}
	l.session, l.depth = l.store.NewSession(), depth
	l.tags, l.free = make(map[*kv.Op]uint64, depth), l.free[:0]
	for tag := range uint64(depth) {
		op := &kv.Op{Kind: kv.OpRead, Key: make([]byte, ycsb.KeySize), Value: make([]byte, 0, l.record)}
		l.tags[op] = tag
		l.free = append(l.free, op)
	}
	return nil
}

// start submits a read with each free operation.
func (l *storeLoop) start() error {
	for _, op := range l.free {
		record.PutKey(op.Key, bench.Draw(l.rng, l.records))
		if err := l.session.Submit(op); err != nil {
			return err
		}
		l.meter.Issued(l.tags[op])
	}
	l.free = l.free[:0]
	return nil
}

// finish waits for completions.
func (l *storeLoop) finish(ctx context.Context) error {
	n := l.session.Poll(l.done)
	for ; n == 0; n = l.session.Poll(l.done) {
		if err := l.session.Wait(ctx); err != nil {
			return err
		}
	}
	for _, op := range l.done[:n] {
		number := record.KeyNumber(op.Key)
		if op.Err != nil {
			return fmt.Errorf("record %d: %w", number, op.Err)
		}
		if !record.EndsMatch(op.Value, number, l.record-recordOverhead) {
			return fmt.Errorf("record %d has a wrong value", number)
		}
		l.meter.Completed(l.tags[op])
		l.free = append(l.free, op)
	}
	return nil
}
