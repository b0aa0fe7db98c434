package goycsb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/kv"
)

// mapDB is go-ycsb's database on a Go map with a lock, with the same keys and rows as DB. A
// read copies the row, since shared rows change. With one thread it does the least work that a
// database can do.
type mapDB struct {
	keys *keySet // nil: no scans

	mu   sync.RWMutex // guards rows and the rows' bytes
	rows map[string][]byte
}

var _ goycsb.DB = (*mapDB)(nil)

func newMapDB(scans bool) *mapDB {
	db := &mapDB{rows: make(map[string][]byte)}
	if scans {
		db.keys = newKeySet()
	}
	return db
}

// InitThread implements go-ycsb's DB.
func (db *mapDB) InitThread(ctx context.Context, _, _ int) context.Context {
	return &workerContext{ctx, new(worker)}
}

// CleanupThread implements go-ycsb's DB.
func (db *mapDB) CleanupThread(context.Context) {}

// copyRow copies the row of key into row.
func (db *mapDB) copyRow(key, row []byte) (_ []byte, found bool) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	stored, found := db.rows[string(key)]
	return append(row[:0], stored...), found
}

// Read implements go-ycsb's DB.
func (db *mapDB) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	w, err := workerOf(ctx)
	if err != nil {
		return nil, err
	}
	w.setKey(table, key)
	var found bool
	if w.read.row, found = db.copyRow(w.key, w.read.row); !found {
		return nil, fmt.Errorf("goycsb: read %s/%s: %w", table, key, kv.ErrNotFound)
	}
	return w.decode(table, key, fields)
}

// Scan implements go-ycsb's DB. It may return fewer records if some are deleted during the
// scan.
func (db *mapDB) Scan(ctx context.Context, table, startKey string, count int, fields []string) ([]map[string][]byte, error) {
	if db.keys == nil {
		return nil, ErrNoScan
	}
	w, err := workerOf(ctx)
	if err != nil {
		return nil, err
	}
	w.setKey(table, "")
	prefix := string(w.key)
	s := &w.scan
	s.records = s.records[:0]
	s.keys = db.keys.from(s.keys[:0], prefix+startKey, count)
	for _, key := range s.keys {
		if !strings.HasPrefix(key, prefix) {
			break // the next table
		}
		v := s.view()
		row, found := db.copyRow([]byte(key), v.row)
		if v.row = row; !found {
			continue
		}
		values, err := v.decode(fields)
		if err != nil {
			return nil, fmt.Errorf("goycsb: scan: key %q: %w", key, err)
		}
		s.records = append(s.records, values)
	}
	return s.records, nil
}

// Insert implements go-ycsb's DB.
func (db *mapDB) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	w.setRow(values)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.put(w.key, w.row)
	return nil
}

// put stores row under key. The caller holds the lock.
func (db *mapDB) put(key, row []byte) {
	if stored, ok := db.rows[string(key)]; ok && len(stored) == len(row) {
		copy(stored, row)
		return
	}
	db.rows[string(key)] = slices.Clone(row)
	if db.keys != nil {
		db.keys.insert(string(key))
	}
}

// Update implements go-ycsb's DB.
func (db *mapDB) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	w.fields = sorted(w.fields, values)
	db.mu.Lock()
	defer db.mu.Unlock()
	stored, found := db.rows[string(w.key)]
	if found && w.edit.overwrite(stored, w.fields) {
		return nil
	}
	if w.row, err = w.edit.merge(w.row[:0], stored, w.fields); err != nil {
		return fmt.Errorf("goycsb: update %s/%s: %w", table, key, err)
	}
	db.put(w.key, w.row)
	return nil
}

// Delete implements go-ycsb's DB.
func (db *mapDB) Delete(ctx context.Context, table, key string) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.rows, string(w.key))
	if db.keys != nil {
		db.keys.remove(string(w.key))
	}
	return nil
}

// Close implements go-ycsb's DB.
func (db *mapDB) Close() error { return nil }
