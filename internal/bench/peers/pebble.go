package peers

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

type pebbleStore struct{ db *pebble.DB }

func openPebble(opts Options) (Store, error) {
	cache := pebble.NewCache(opts.Memory)
	defer cache.Unref() // the database holds it
	o := PebbleOptions(cache)
	o.DisableWAL = true // what is not committed is lost with the process, as redykv's is
	db, err := pebble.Open(opts.Dir, o)
	if err != nil {
		return nil, err
	}
	return &pebbleStore{db}, nil
}

// PebbleOptions returns the options of a Pebble that is measured: no compression, a Bloom
// filter of 10 bits a key, no logging. Its memtables, at most nine of a sixteenth of the block
// cache, take their memory from it. The caller keeps its reference to the block cache.
func PebbleOptions(cache *pebble.Cache) *pebble.Options {
	o := &pebble.Options{
		Cache: cache, MemTableSize: uint64(min(max(cache.MaxSize()/16, 4<<20), 64<<20)), MemTableStopWritesThreshold: 8, FormatMajorVersion: pebble.FormatNewest,
		Logger: quiet{pebble.DefaultLogger},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	return o
}

// quiet is a logger that drops everything: failures are returned as errors.
type quiet struct{ pebble.Logger }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}

func (s *pebbleStore) Write(pairs []Pair) error {
	batch := s.db.NewBatch()
	for _, p := range pairs {
		if err := batch.Set(p.Key, p.Value, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return errors.Join(batch.Commit(pebble.NoSync), batch.Close())
}

func (s *pebbleStore) Delete(key []byte) error { return s.db.Delete(key, pebble.NoSync) }

func (s *pebbleStore) NewReader() (Reader, error) { return pebbleReader{s.db}, nil }

func (s *pebbleStore) Scan(from []byte, n int, each func(key, value []byte)) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && n > 0; ok = it.Next() {
		each(it.Key(), it.Value())
		n--
	}
	return it.Close()
}

func (s *pebbleStore) Settle(ctx context.Context) error {
	if err := s.db.Flush(); err != nil {
		return err
	}
	last := make([]byte, 64)
	for i := range last {
		last[i] = 0xff
	}
	return s.db.Compact(ctx, []byte{0}, last, true)
}

func (s *pebbleStore) Close() error { return s.db.Close() }

// pebbleReader is the store itself, which has no state for a goroutine.
type pebbleReader struct{ db *pebble.DB }

func (r pebbleReader) Get(key, dst []byte) ([]byte, error) {
	value, closer, err := r.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, ErrNotFound
	}
	if err != nil {
		return dst, err
	}
	dst = append(dst, value...)
	return dst, closer.Close()
}

func (pebbleReader) Close() error { return nil }
