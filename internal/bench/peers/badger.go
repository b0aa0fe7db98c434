package peers

import (
	"context"
	"errors"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// leastBadgerTable is the least size of Badger's memtables: a value must fit into a seventh.
const leastBadgerTable = 8 << 20

type badgerStore struct{ db *badger.DB }

// openBadger keeps the tables' indexes and filters in memory, as they are by default: without
// one a read reads it all. Blocks get what these and the memtables leave.
func openBadger(opts Options) (Store, error) {
	const tables, indexBytes = 5, 24 // memtables; bytes of an index for each record
	table := min(max(opts.Memory/32, leastBadgerTable), 64<<20)
	blocks := max(opts.Memory-tables*table-indexBytes*opts.Records, opts.Memory/8)
	o := badger.DefaultOptions(opts.Dir).WithLogger(nil).WithMetricsEnabled(false).
		WithSyncWrites(false).WithDetectConflicts(false).WithCompression(options.None).
		WithBlockCacheSize(blocks).WithMemTableSize(table).WithNumMemtables(tables)
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
