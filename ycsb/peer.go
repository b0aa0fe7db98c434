package ycsb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
)

// Peers are embedded stores of other projects, which are compared as if they were devices.
// They get the same load, and as much memory as the store's memory and index. Each read is one
// blocking call; depth does not apply.
var Peers = []Device{"pebble", "badger", "bbolt"}

// peerTarget is a store of another project.
type peerTarget struct {
	name  Device
	store peers.Store
}

// openPeer opens a peer with files in dir, which it makes.
func openPeer(name Device, shape Shape, dir string) (*Target, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("ycsb: directory %s: %w", dir, err)
	}
	store, err := peers.Open(string(name), peers.Options{Dir: dir, Memory: shape.Memory + kv.IndexMemory(shape.Records)})
	if err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	return &Target{
		peer:    &peerTarget{name, store},
		Storage: Storage{history: new(history), release: store.Close, tiers: []Device{name}},
	}, nil
}

// putPeerKey writes a record's key in big-endian order, so that keys sort by number, which
// suits peers.
func putPeerKey(key []byte, n uint64) { binary.BigEndian.PutUint64(key, n) }

// load stores all records, and waits until the peer's background work has ended.
func (p *peerTarget) load(ctx context.Context, shape Shape, progress Progress) error {
	const batch = 1 << 14
	for n := int64(0); n < shape.Records; {
		pairs := make([]peers.Pair, min(batch, shape.Records-n))
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

// newReader returns a thread that reads from a peer.
func (p *peerTarget) newReader(valueSize int, numbers *Generator) (*peerReader, error) {
	r, err := p.store.NewReader()
	if err != nil {
		return nil, fmt.Errorf("ycsb: %s: %w", p.name, err)
	}
	return &peerReader{reader: r, key: make([]byte, KeySize), valueSize: valueSize, numbers: numbers, tally: newTally()}, nil
}

// peerReader is one thread of an experiment on a peer. It reads one record at a time.
type peerReader struct {
	reader    peers.Reader
	key       []byte
	value     []byte
	valueSize int
	numbers   *Generator
	pacer     pacer
	tally
}

// run reads until stop is set.
func (r *peerReader) run(_ context.Context, stop *atomic.Bool) error {
	epoch := time.Now()
	now := func() int64 { return int64(time.Since(epoch)) | 1 }
	r.pacer.begin(now())
	for i := uint64(0); !stop.Load(); {
		began := int64(0)
		switch {
		case r.pacer.open() && !r.pacer.isDue(now()):
			r.pacer.rest(now(), true)
			continue
		case r.pacer.open():
			began = r.pacer.intended()
		case i%sampleEvery == 0:
			began = now()
		}
		i++
		n := uint64(r.numbers.Next())
		putPeerKey(r.key, n)
		var err error
		r.value, err = r.reader.Get(r.key, r.value[:0])
		if err == nil && !record.EndsMatch(r.value, n, r.valueSize) || err == nil && began != 0 {
			err = record.CheckValue(r.value, n, r.valueSize)
		}
		r.reads++
		if err != nil {
			r.errors++
			if r.first == nil {
				r.first = fmt.Errorf("record %d: %w", n, err)
			}
		}
		if began != 0 {
			// RecordValue fails only for values out of range.
			_ = r.latencies.RecordValue(min(max(now()-began, 1), maxLatency))
		}
		r.pacer.advance()
	}
	return nil
}
