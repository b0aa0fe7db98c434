package goycsb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/kv"
)

// ErrNoScan says that a DB keeps no order of its keys: set redykv.scan=true both
// when loading and when running.
var ErrNoScan = errors.New("goycsb: scan without an ordered set of keys")

// DB is go-ycsb's database on a store of variable-length records. A record's key
// is its table's name and its YCSB key, its value the fields. It is safe for
// concurrent use; a worker goroutine that has passed its context through
// InitThread has a session of its own.
type DB struct {
	store *kv.Store
	keys  *keySet                    // nil: no scans
	save  func(ordered []byte) error // stores the keys, before the store closes

	mu      sync.Mutex
	failure error // the first error that is more than a missing record
}

var _ goycsb.DB = (*DB)(nil)

// NewDB returns a DB over store, which it closes in the end. It has no scans.
func NewDB(store *kv.Store) *DB { return &DB{store: store} }

// worker is what one goroutine of the client keeps. It travels in the context.
type worker struct {
	session *kv.Session
	key     []byte
	row     []byte
	names   []string
	keys    []string // of a round of a scan
	ops     []kv.Op  // and its reads

	// fields is what modify merges into a row, and merging what came of it:
	// set around one RMW.
	fields  map[string][]byte
	merging error
	modify  kv.Modifier // the worker's own merge, bound once
}

type workerKey struct{}

// InitThread implements go-ycsb's DB: it opens a session.
func (db *DB) InitThread(ctx context.Context, _, _ int) context.Context {
	w := &worker{session: db.store.NewSession()}
	w.modify = w.merge
	return context.WithValue(ctx, workerKey{}, w)
}

// CleanupThread implements go-ycsb's DB: it closes the session.
func (db *DB) CleanupThread(ctx context.Context) {
	w, ok := ctx.Value(workerKey{}).(*worker)
	if !ok {
		return
	}
	if err := w.session.Close(); err != nil {
		_ = db.check(fmt.Errorf("goycsb: close a session: %w", err)) // kept for Err
	}
}

// workerOf returns the worker that InitThread put into ctx.
func workerOf(ctx context.Context) (*worker, error) {
	w, ok := ctx.Value(workerKey{}).(*worker)
	if !ok {
		return nil, errors.New("goycsb: the context did not pass through InitThread")
	}
	return w, nil
}

// setKey makes w.key the store's key of a record: the length of the table's name,
// the name, and the YCSB key. No two pairs of names have the same one.
func (w *worker) setKey(table, key string) {
	w.key = binary.AppendUvarint(w.key[:0], uint64(len(table)))
	w.key = append(w.key, table...)
	w.key = append(w.key, key...)
}

// setRow makes w.row the row of these fields.
func (w *worker) setRow(values map[string][]byte) {
	w.names = sortedNames(w.names[:0], values)
	w.row = w.row[:0]
	for _, name := range w.names {
		w.row = appendField(w.row, name, values[name])
	}
}

// merge is the kv.Modifier of Update.
func (w *worker) merge(u *kv.Update) kv.Verdict {
	u.New, w.merging = mergeRow(u.New, u.Old, w.fields, w.names)
	if w.merging != nil {
		return kv.Keep
	}
	return kv.Put
}

// Read implements go-ycsb's DB. A record that is not there is kv.ErrNotFound.
func (db *DB) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	w, err := workerOf(ctx)
	if err != nil {
		return nil, err
	}
	values, err := w.read(table, key, fields)
	return values, db.check(err)
}

func (w *worker) read(table, key string, fields []string) (map[string][]byte, error) {
	w.setKey(table, key)
	var err error
	if w.row, err = w.session.Read(w.key, w.row[:0]); err != nil {
		return nil, fmt.Errorf("goycsb: read %s/%s: %w", table, key, err)
	}
	// The client keeps the fields beyond the next operation, the row is ours.
	values, err := decodeRow(slices.Clone(w.row), fields)
	if err != nil {
		return nil, fmt.Errorf("goycsb: read %s/%s: %w", table, key, err)
	}
	return values, nil
}

// Scan implements go-ycsb's DB: the records of up to count keys of the table, in
// order, from startKey on. Without an ordered set of keys it is ErrNoScan.
func (db *DB) Scan(ctx context.Context, table, startKey string, count int, fields []string) ([]map[string][]byte, error) {
	if db.keys == nil {
		return nil, db.check(ErrNoScan)
	}
	w, err := workerOf(ctx)
	if err != nil {
		return nil, err
	}
	w.setKey(table, "")
	prefix := string(w.key)
	var records []map[string][]byte
	for next := prefix + startKey; len(records) < count; {
		// Keys whose records are gone are made up for in the next round.
		w.keys = db.keys.from(w.keys[:0], next, min(count-len(records), scanRound))
		end := slices.IndexFunc(w.keys, func(key string) bool { return !strings.HasPrefix(key, prefix) })
		if end < 0 {
			end = len(w.keys)
		}
		if records, err = w.readAll(records, w.keys[:end], fields); err != nil {
			return nil, db.check(fmt.Errorf("goycsb: scan %s from %s: %w", table, startKey, err))
		}
		if end < len(w.keys) || end == 0 {
			break // the next table, or no table
		}
		next = w.keys[end-1] + "\x00" // the key right after
	}
	return records, nil
}

// scanRound is how many records a scan reads at once.
const scanRound = 128

// readAll appends to records those of the store's keys that are there, their
// cold reads under way together.
func (w *worker) readAll(records []map[string][]byte, keys []string, fields []string) ([]map[string][]byte, error) {
	for len(w.ops) < len(keys) {
		w.ops = append(w.ops, kv.Op{Kind: kv.OpRead})
	}
	ops := w.ops[:len(keys)]
	for i, key := range keys {
		ops[i].Key = append(ops[i].Key[:0], key...)
	}
	if err := w.session.Do(ops); err != nil {
		return nil, err
	}
	for i := range ops {
		if errors.Is(ops[i].Err, kv.ErrNotFound) {
			continue // deleted since the keys were listed
		}
		values, err := decodeRow(slices.Clone(ops[i].Value), fields)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", keys[i], err)
		}
		records = append(records, values)
	}
	return records, nil
}

// Insert implements go-ycsb's DB. A record that is there already is replaced.
func (db *DB) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	w.setRow(values)
	if err := w.session.Upsert(w.key, w.row); err != nil {
		return db.check(fmt.Errorf("goycsb: insert %s/%s: %w", table, key, err))
	}
	if db.keys != nil {
		db.keys.insert(string(w.key))
	}
	return nil
}

// Update implements go-ycsb's DB: one atomic RMW that puts the given fields over
// those of the record. A record that is not there is made of them.
func (db *DB) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	w.names = sortedNames(w.names[:0], values)
	w.fields, w.merging = values, nil
	err = w.session.RMW(w.key, w.modify)
	if err == nil {
		err = w.merging
	}
	if err != nil {
		return db.check(fmt.Errorf("goycsb: update %s/%s: %w", table, key, err))
	}
	if db.keys != nil {
		db.keys.insert(string(w.key))
	}
	return nil
}

// Delete implements go-ycsb's DB.
func (db *DB) Delete(ctx context.Context, table, key string) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	if err := w.session.Delete(w.key); err != nil && !errors.Is(err, kv.ErrNotFound) {
		return db.check(fmt.Errorf("goycsb: delete %s/%s: %w", table, key, err))
	}
	if db.keys != nil {
		db.keys.remove(string(w.key))
	}
	return nil
}

// Close implements go-ycsb's DB: it stores the ordered set of keys, if there is
// one, and closes the store.
func (db *DB) Close() error {
	var err error
	if db.keys != nil && db.save != nil {
		// First the keys: a key too many is found missing by a scan, a key too
		// few is never found.
		err = db.save(db.keys.encode())
	}
	return errors.Join(err, db.store.Close())
}

// Err is the first error that any operation had, other than a record that is not
// there, or nil: go-ycsb's client counts errors and goes on.
func (db *DB) Err() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.failure
}

// check keeps err for Err and returns it.
func (db *DB) check(err error) error {
	if err == nil || errors.Is(err, kv.ErrNotFound) {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.failure == nil {
		db.failure = err
	}
	return err
}
