package goycsb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/kv"
)

// peerDB is go-ycsb's database on a store of another project, with the same keys and rows as
// DB, so that only the stores differ.
type peerDB struct {
	store peers.Store

	// locks are held during updates, which read, merge and write. The hash of a key selects
	// its lock.
	seed  maphash.Seed
	locks [256]sync.Mutex
}

var _ goycsb.DB = (*peerDB)(nil)

func newPeerDB(store peers.Store) *peerDB { return &peerDB{store: store, seed: maphash.MakeSeed()} }

// InitThread implements go-ycsb's DB.
func (db *peerDB) InitThread(ctx context.Context, _, _ int) context.Context {
	reader, err := db.store.NewReader()
	if err != nil {
		return ctx // without a worker in ctx, every operation fails
	}
	return &workerContext{ctx, &worker{reader: reader}}
}

// CleanupThread implements go-ycsb's DB.
func (db *peerDB) CleanupThread(ctx context.Context) {
	if w, err := workerOf(ctx); err == nil {
		_ = w.reader.Close()
	}
}

// get reads a record into row.
func (w *worker) get(table, key string, row []byte) ([]byte, error) {
	w.setKey(table, key)
	row, err := w.reader.Get(w.key, row[:0])
	if errors.Is(err, peers.ErrNotFound) {
		err = kv.ErrNotFound
	}
	if err != nil {
		return row, fmt.Errorf("goycsb: %s/%s: %w", table, key, err)
	}
	return row, nil
}

// Read implements go-ycsb's DB.
func (db *peerDB) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	w, err := workerOf(ctx)
	if err != nil {
		return nil, err
	}
	if w.read.row, err = w.get(table, key, w.read.row); err != nil {
		return nil, err
	}
	return w.read.decode(fields)
}

// Scan implements go-ycsb's DB.
func (db *peerDB) Scan(ctx context.Context, table, startKey string, count int, fields []string) (_ []map[string][]byte, err error) {
	w, err := workerOf(ctx)
	if err != nil {
		return nil, err
	}
	w.setKey(table, "")
	prefix := slices.Clone(w.key)
	s := &w.scan
	s.records = s.records[:0]
	scanErr := db.store.Scan(append(w.key, startKey...), count, func(key, row []byte) {
		if !bytes.HasPrefix(key, prefix) || err != nil {
			return
		}
		v := s.view()
		v.row = append(v.row[:0], row...)
		var values map[string][]byte
		if values, err = v.decode(fields); err == nil {
			s.records = append(s.records, values)
		}
	})
	return s.records, errors.Join(scanErr, err)
}

// Insert implements go-ycsb's DB.
func (db *peerDB) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	w.setRow(values)
	return db.store.Write([]peers.Pair{{Key: w.key, Value: w.row}})
}

// Update implements go-ycsb's DB.
func (db *peerDB) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	lock := &db.locks[maphash.String(db.seed, key)%uint64(len(db.locks))]
	lock.Lock()
	defer lock.Unlock()
	if w.old, err = w.get(table, key, w.old); err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	w.fields = sorted(w.fields, values)
	if w.row, err = w.edit.merge(w.row[:0], w.old, w.fields); err != nil {
		return fmt.Errorf("goycsb: update %s/%s: %w", table, key, err)
	}
	return db.store.Write([]peers.Pair{{Key: w.key, Value: w.row}})
}

// Delete implements go-ycsb's DB.
func (db *peerDB) Delete(ctx context.Context, table, key string) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	return db.store.Delete(w.key)
}

// Close implements go-ycsb's DB.
func (db *peerDB) Close() error { return db.store.Close() }

// emptyDB does nothing. It measures the cost of go-ycsb itself.
type emptyDB struct{}

var _ goycsb.DB = emptyDB{}

func (emptyDB) InitThread(ctx context.Context, _, _ int) context.Context { return ctx }
func (emptyDB) CleanupThread(context.Context)                            {}
func (emptyDB) Read(context.Context, string, string, []string) (map[string][]byte, error) {
	return nil, nil
}
func (emptyDB) Scan(context.Context, string, string, int, []string) ([]map[string][]byte, error) {
	return nil, nil
}
func (emptyDB) Update(context.Context, string, string, map[string][]byte) error { return nil }
func (emptyDB) Insert(context.Context, string, string, map[string][]byte) error { return nil }
func (emptyDB) Delete(context.Context, string, string) error                    { return nil }
func (emptyDB) Close() error                                                    { return nil }
