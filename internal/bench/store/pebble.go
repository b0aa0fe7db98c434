package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// pebblePeer is a Pebble configured to do as little as possible: its files are in memory,
// nothing is logged, synced or compressed, its block cache holds all data, and it has been
// compacted into one level.
type pebblePeer struct {
	db    *pebble.DB
	cache *pebble.Cache
}

// openPebble makes and loads the peer of a run. The caller closes it.
func openPebble(ctx context.Context, s *Spec, progress bench.Progress) (*pebblePeer, error) {
	opts := peers.PebbleOptions(pebble.NewCache(peerCache(s)))
	opts.FS, opts.DisableWAL = vfs.NewMem(), true
	db, err := pebble.Open("", opts)
	if err != nil {
		opts.Cache.Unref()
		return nil, fmt.Errorf("storebench: opening pebble: %w", err)
	}
	p := &pebblePeer{db: db, cache: opts.Cache}
	progress.Begin("load pebble", s.Records)
	err = p.load(ctx, s, progress)
	progress.End()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("storebench: loading pebble: %w", err), p.close())
	}
	return p, nil
}

// peerCache returns the size of a block cache with room for all data several times.
func peerCache(s *Spec) int64 { return 4*s.logBytes() + 64<<20 }

func (p *pebblePeer) load(ctx context.Context, s *Spec, progress bench.Progress) error {
	const batchSize = 1 << 12
	key, value := make([]byte, ycsb.KeySize), make([]byte, s.ValueSize)
	for n := int64(0); n < s.Records; {
		batch := p.db.NewBatch()
		from := n
		for ; n < min(from+batchSize, s.Records); n++ {
			record.PutKey(key, uint64(n))
			record.FillValue(value, uint64(n))
			if err := batch.Set(key, value, nil); err != nil {
				return err
			}
		}
		if err := errors.Join(batch.Commit(pebble.NoSync), batch.Close(), ctx.Err()); err != nil {
			return err
		}
		progress.Add(n - from)
	}
	if err := p.db.Flush(); err != nil {
		return err
	}
	return p.db.Compact(ctx, []byte{0}, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true)
}

// run is the loop of a cell of the peer: plain reads and upserts.
func (p *pebblePeer) run(w *worker, k kinds, numbers []uint32) error {
	coins := w.coins.Uint64()
	for _, n := range numbers {
		var err error
		record.PutKey(w.key, uint64(n))
		if k.next(&coins) == 0 {
			err = p.read(w, n)
		} else {
			record.StampEnds(w.value, uint64(n))
			err = p.db.Set(w.key, w.value, pebble.NoSync)
		}
		if err != nil {
			return fmt.Errorf("storebench: pebble: record %d: %w", n, err)
		}
	}
	return nil
}

func (p *pebblePeer) read(w *worker, n uint32) error {
	value, closer, err := p.db.Get(w.key)
	if err != nil {
		return err
	}
	if !ownWord(value, uint64(n)) {
		err = w.check(value, uint64(n))
	}
	return errors.Join(err, closer.Close())
}

func (p *pebblePeer) close() error {
	err := p.db.Close()
	p.cache.Unref()
	if err != nil {
		return fmt.Errorf("storebench: closing pebble: %w", err)
	}
	return nil
}

// describe describes the peer.
func (p *pebblePeer) describe(s *Spec) string {
	return fmt.Sprintf("%s, files in memory, no log, no compression, block cache of %v, compacted after loading",
		peers.Module("pebble"), units.Size(peerCache(s)))
}
