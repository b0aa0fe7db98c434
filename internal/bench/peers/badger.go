package peers

import (
	"context"
	"errors"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

type badgerStore struct{ db *badger.DB }

func openBadger(opts Options) (Store, error) {
	o := badger.DefaultOptions(opts.Dir).WithLogger(nil).WithMetricsEnabled(false).
		WithSyncWrites(false).WithDetectConflicts(false).WithCompression(options.None).
		WithBlockCacheSize(opts.Memory)
	db, err := badger.Open(o)
	if err != nil {
		return nil, err
	}
	return &badgerStore{db}, nil
}

func (s *badgerStore) Write(pairs []Pair) error {
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for _, p := range pairs {
		// Badger refers to both until it is flushed; the caller keeps them.
		if err := batch.Set(p.Key, p.Value); err != nil {
			return err
		}
	}
	return batch.Flush()
}

func (s *badgerStore) Delete(key []byte) error {
	return s.db.Update(func(txn *badger.Txn) error { return txn.Delete(key) })
}

func (s *badgerStore) NewReader() (Reader, error) { return badgerReader{s.db}, nil }

// badgerReader reads each key in a separate transaction, to see the newest value.
type badgerReader struct{ db *badger.DB }

func (r badgerReader) Get(key, dst []byte) ([]byte, error) {
	txn := r.db.NewTransaction(false)
	defer txn.Discard()
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return dst, ErrNotFound
	}
	if err != nil {
		return dst, err
	}
	err = item.Value(func(value []byte) error {
		dst = append(dst, value...)
		return nil
	})
	return dst, err
}

func (badgerReader) Close() error { return nil }

func (s *badgerStore) Scan(from []byte, n int, each func(key, value []byte)) error {
	return s.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Seek(from); it.Valid() && n > 0; it.Next() {
			item := it.Item()
			if err := item.Value(func(value []byte) error { each(item.Key(), value); return nil }); err != nil {
				return err
			}
			n--
		}
		return nil
	})
}

// Settle compacts all levels into one.
func (s *badgerStore) Settle(context.Context) error { return s.db.Flatten(2) }

func (s *badgerStore) Close() error { return s.db.Close() }
