package ycsb

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/units"
)

// Peers are embedded stores of other projects, which are compared as if they were devices.
// They get the same load, and caches that are at most as large as the store's memory and index.
// Each operation is one blocking call, a read-modify-write two: there are as many goroutines as
// redykv keeps operations pending.
var Peers = []Device{"pebble", "badger", "bbolt"}

// peerTarget is a store of another project.
type peerTarget struct {
	name   Device
	store  peers.Store
	caches int64 // bytes
}

// openPeer opens a peer with files in dir, which it makes.
func openPeer(name Device, shape Shape, caches int64, dir string) (*Target, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("ycsb: directory %s: %w", dir, err)
	}
	store, err := peers.Open(string(name), peers.Options{Dir: dir, Memory: caches, Records: shape.Records})
	if err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	return &Target{
		peer:    &peerTarget{name: name, store: store, caches: caches},
		Storage: Storage{history: new(history), release: store.Close, tiers: []Device{name}, files: dir},
	}, nil
}

// describe returns the note of the peer's results.
func (p *peerTarget) describe() string {
	return fmt.Sprintf("%s; caches of %v", peers.Describe(string(p.name)), units.Size(p.caches))
}

// putPeerKey writes a record's key in big-endian order, so that keys sort by number, which
// suits peers.
func putPeerKey(key []byte, n uint64) { binary.BigEndian.PutUint64(key, n) }

// peerBatch returns the number of records that are written to a peer at once, of about
// a megabyte.
func (s Shape) peerBatch() int64 {
	return max(1, min(1<<14, peerBatchBytes/int64(KeySize+s.ValueSize)))
}

const peerBatchBytes = 1 << 20

// load stores all records, and waits until the peer's background work has ended.
func (p *peerTarget) load(ctx context.Context, shape Shape, progress Progress) error {
	for n := int64(0); n < shape.Records; {
		pairs := make([]peers.Pair, min(shape.peerBatch(), shape.Records-n))
		for i := range pairs {
			pairs[i] = peers.Pair{Key: make([]byte, KeySize), Value: make([]byte, shape.ValueSize)}
			putPeerKey(pairs[i].Key, uint64(n)+uint64(i))
			record.FillValue(pairs[i].Value, uint64(n)+uint64(i))
		}
		if err := errors.Join(p.store.Write(pairs), ctx.Err()); err != nil {
			return fmt.Errorf("ycsb: %s: load: %w", p.name, err)
		}
		n += int64(len(pairs))
		progress.Add(int64(len(pairs)))
	}
	if err := p.store.Settle(ctx); err != nil {
		return fmt.Errorf("ycsb: %s: settle: %w", p.name, err)
	}
	return nil
}

// maxGoroutines is the largest number of goroutines that use a peer.
const maxGoroutines = 1 << 16

// peerThread is one thread of an experiment on a peer: a goroutine for each operation that a
// thread of redykv keeps pending.
type peerThread struct {
	readers []*peerReader
	mu      sync.Mutex // guards tally during run
	tally
}

// newThread returns thread number i of an experiment.
func (p *peerTarget) newThread(spec Spec, i int) (*peerThread, error) {
	t := &peerThread{tally: newTally()}
	for j := range spec.Depth {
		at, all := i*spec.Depth+j, spec.Threads*spec.Depth
		seed := spec.Seed*maxGoroutines + int64(at)
		numbers, err := spec.Distribution.Generator(spec.Records, seed)
		if err != nil {
			return nil, err
		}
		kinds, err := newChooser(spec.Mix.mix(), seed)
		if err != nil {
			return nil, err
		}
		reader, err := p.store.NewReader()
		if err != nil {
			return nil, fmt.Errorf("ycsb: %s: %w", p.name, err)
		}
		r := &peerReader{
			store: p.store, reader: reader, kinds: kinds, numbers: numbers, thread: t, valueSize: spec.ValueSize,
			pair: []peers.Pair{{Key: make([]byte, KeySize), Value: make([]byte, spec.ValueSize)}},
		}
		r.pacer.pace(spec.Rate, at, all)
		t.readers = append(t.readers, r)
	}
	return t, nil
}

// run operates until stop is set.
func (t *peerThread) run(_ context.Context, stop *atomic.Bool) error {
	var group sync.WaitGroup
	for _, r := range t.readers {
		group.Go(func() { r.run(stop) })
	}
	group.Wait()
	return nil
}

// peerReader is one goroutine of a thread. It reads or writes one record at a time.
type peerReader struct {
	thread    *peerThread
	store     peers.Store
	reader    peers.Reader
	pair      []peers.Pair // the key of an operation, and the value that it writes
	value     []byte       // read
	valueSize int
	kinds     chooser
	numbers   *Generator
	pacer     pacer
}

// run operates until stop is set, and adds what it did to the thread's tally.
func (r *peerReader) run(stop *atomic.Bool) {
	var count, writes, wrong uint64
	var first error
	epoch := time.Now()
	now := func() int64 { return int64(time.Since(epoch)) | 1 }
	r.pacer.begin(now())
	for !stop.Load() {
		if r.pacer.open() && !r.pacer.isDue(now()) {
			r.pacer.rest(now(), true)
			continue
		}
		kind, n := r.draw()
		began := int64(0) // as of redykv's operations, a latency is without the draw and without the check of the whole value
		switch {
		case r.pacer.open():
			began = r.pacer.intended()
		case count%sampleEvery == 0:
			began = now()
		}
		err := r.do(kind, n)
		if began != 0 {
			r.thread.record(now() - began)
			if err == nil && kind == Read {
				err = record.CheckValue(r.value, n, r.valueSize)
			}
		}
		if err != nil {
			wrong++
			first = cmp.Or(first, fmt.Errorf("record %d: %w", n, err))
		}
		count++
		if kind != Read {
			writes++
		}
		r.pacer.advance()
	}
	r.thread.mu.Lock()
	defer r.thread.mu.Unlock()
	r.thread.count += count
	r.thread.writes += writes
	r.thread.errors += wrong
	r.thread.first = cmp.Or(r.thread.first, first)
}

// draw draws the next operation, and makes its key and the value of an update.
func (r *peerReader) draw() (kind Kind, n uint64) {
	kind, n = r.kinds.next(), uint64(r.numbers.Next())
	putPeerKey(r.pair[0].Key, n)
	if kind != Read && kind != ReadModifyWrite {
		record.FillValue(r.pair[0].Value, n)
	}
	return kind, n
}

// do carries out one operation.
func (r *peerReader) do(kind Kind, n uint64) error {
	switch kind {
	case Read:
		return r.read(n)
	case ReadModifyWrite:
		if err := r.read(n); err != nil {
			return err
		}
		record.FillValue(r.pair[0].Value, n)
	}
	return r.store.Write(r.pair)
}

// read reads the record and checks the ends of its value.
func (r *peerReader) read(n uint64) (err error) {
	if r.value, err = r.reader.Get(r.pair[0].Key, r.value[:0]); err != nil {
		return err
	}
	if !record.EndsMatch(r.value, n, r.valueSize) {
		return record.CheckValue(r.value, n, r.valueSize)
	}
	return nil
}

// record adds a latency, in nanoseconds, to the tally.
func (t *peerThread) record(latency int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// RecordValue fails only for values out of range.
	_ = t.latencies.RecordValue(min(max(latency, 1), maxLatency))
}
