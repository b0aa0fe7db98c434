package goycsb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pingcap/go-ycsb/pkg/prop"
	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/kv"
)

// ErrNoScan is returned by Scan of a DB without an ordered set of keys. Set redykv.scan=true
// for both load and run.
var ErrNoScan = errors.New("goycsb: scan without an ordered set of keys")

// DB is go-ycsb's database on a store of variable-length records. The key of a record is made
// of the table's name and the YCSB key; the value has the fields. It is safe for concurrent
// use. InitThread gives each worker goroutine a session.
//
// The result of Read or Scan is valid until the same worker's next Read or Scan, and must not
// be changed. So a read allocates nothing.
type DB struct {
	store *kv.Store
	keys  *keySet                    // nil: no scans
	save  func(ordered []byte) error // stores the keys, before the store closes

	mu      sync.Mutex // guards the fields below
	failed  int        // operations with an error, a missing record included
	failure error      // the first error
}

var _ goycsb.DB = (*DB)(nil)

// NewDB returns a DB over store, without scans. Close closes the store.
func NewDB(store *kv.Store) *DB { return &DB{store: store} }

// Store returns the store of the DB.
func (db *DB) Store() *kv.Store { return db.store }

// worker has the session and buffers of one goroutine. Its context holds it.
type worker struct {
	session *kv.Session
	key     []byte
	table   string // the table in key; the first prefix bytes of key stand for it
	prefix  int
	read    view   // what Read returned
	row     []byte // what Insert writes
	scan    scan   // what Scan returned

	// For one RMW: the fields to write, and the results made and merging.
	fields  []field
	made    bool // the record did not exist
	merging error
	edit    edit
	change  kv.Op // the RMW, with the worker's own merge and overwrite

	reader peers.Reader // of a peer, instead of session
	old    []byte       // the row that a peer's Update read
}

// scan has the buffers of a worker's scans.
type scan struct {
	keys    []string // of one round of reads
	ops     []kv.Op  // the reads of a round
	views   []*view  // the records, in order of keys
	records []map[string][]byte
}

// view returns the view of the next record.
func (s *scan) view() *view {
	if len(s.views) == len(s.records) {
		s.views = append(s.views, new(view))
	}
	return s.views[len(s.records)]
}

type workerKey struct{}

// workerContext is a context with a worker. workerOf reads the worker by a type assertion,
// which is faster than Value.
type workerContext struct {
	context.Context
	worker *worker
}

// Value implements context.Context.
func (c *workerContext) Value(key any) any {
	if key == (workerKey{}) {
		return c.worker
	}
	return c.Context.Value(key)
}

// InitThread implements go-ycsb's DB: it opens a session.
func (db *DB) InitThread(ctx context.Context, _, _ int) context.Context {
	w := &worker{session: db.store.NewSession()}
	w.change = kv.Op{Kind: kv.OpRMW, Modify: w.merge, InPlace: w.overwrite}
	return &workerContext{ctx, w}
}

// CleanupThread implements go-ycsb's DB: it closes the session.
func (db *DB) CleanupThread(ctx context.Context) {
	w, err := workerOf(ctx)
	if err != nil {
		return
	}
	if err := w.session.Close(); err != nil {
		_ = db.check(fmt.Errorf("goycsb: close a session: %w", err))
	}
}

// workerOf returns the worker that InitThread put into ctx.
func workerOf(ctx context.Context) (*worker, error) {
	if c, ok := ctx.(*workerContext); ok {
		return c.worker, nil
	}
	w, ok := ctx.Value(workerKey{}).(*worker)
	if !ok {
		return nil, errors.New("goycsb: the context is not one that InitThread returned")
	}
	return w, nil
}

// setKey sets w.key to the store's key of a record: a prefix for the table, then the YCSB key.
// The prefix is one byte 0 for the default table, and otherwise the length of the name plus 1
// and the name, so different pairs of table and key have different keys. A short prefix makes
// hashing faster.
func (w *worker) setKey(table, key string) {
	if table != w.table || w.prefix == 0 { // usually the same as before
		if w.key = w.key[:0]; table == prop.TableNameDefault {
			w.key = append(w.key, 0)
		} else {
			w.key = binary.AppendUvarint(w.key, uint64(len(table))+1)
			w.key = append(w.key, table...)
		}
		w.table, w.prefix = table, len(w.key)
	}
	w.key = append(w.key[:w.prefix], key...)
}

// setRow encodes the fields in w.row.
func (w *worker) setRow(values map[string][]byte) {
	w.fields = sorted(w.fields, values)
	w.row = appendRow(w.row[:0], w.fields)
}

// overwrite is the kv.InPlace of Update. Fields usually keep their lengths.
func (w *worker) overwrite(row []byte) ([]byte, bool) {
	w.made = false // an earlier attempt may have set it
	return row, w.edit.overwrite(row, w.fields)
}

// merge is the kv.Modifier of Update.
func (w *worker) merge(u *kv.Update) kv.Verdict {
	w.made = !u.Found
	u.New, w.merging = w.edit.merge(u.New, u.Old, w.fields)
	if w.merging != nil {
		return kv.Keep
	}
	return kv.Put
}

// Read implements go-ycsb's DB. If the record does not exist, it returns kv.ErrNotFound.
func (db *DB) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	w, err := workerOf(ctx)
	if err != nil {
		return nil, err
	}
	values, err := w.readRow(table, key, fields)
	if err != nil {
		return nil, db.check(err)
	}
	return values, nil
}

func (w *worker) readRow(table, key string, fields []string) (map[string][]byte, error) {
	w.setKey(table, key)
	var err error
	if w.read.row, err = w.session.Read(w.key, w.read.row[:0]); err != nil {
		return nil, fmt.Errorf("goycsb: read %s/%s: %w", table, key, err)
	}
	return w.decode(table, key, fields)
}

// decode returns the fields of the row that was read.
func (w *worker) decode(table, key string, fields []string) (map[string][]byte, error) {
	values, err := w.read.decode(fields)
	if err != nil {
		return nil, fmt.Errorf("goycsb: read %s/%s: %w", table, key, err)
	}
	return values, nil
}

// Scan implements go-ycsb's DB. It returns the records of up to count keys of the table, in
// order, from startKey on. Without an ordered set of keys it returns ErrNoScan.
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
	s := &w.scan
	s.records = s.records[:0]
	for next := prefix + startKey; len(s.records) < count; {
		// The next round makes up for keys without a record.
		s.keys = db.keys.from(s.keys[:0], next, min(count-len(s.records), scanRound))
		end := slices.IndexFunc(s.keys, func(key string) bool { return !strings.HasPrefix(key, prefix) })
		if end < 0 {
			end = len(s.keys)
		}
		if err := w.readAll(s.keys[:end], fields); err != nil {
			return nil, db.check(fmt.Errorf("goycsb: scan %s from %s: %w", table, startKey, err))
		}
		if end < len(s.keys) || end == 0 {
			break // the next table, or the end
		}
		next = s.keys[end-1] + "\x00" // the least key after the last one
	}
	return s.records, nil
}

// scanRound is the most records that a scan reads in one round.
const scanRound = 128

// readAll appends the existing records of keys to the scan's records. It reads them as one
// batch.
func (w *worker) readAll(keys []string, fields []string) error {
	s := &w.scan
	for len(s.ops) < len(keys) {
		s.ops = append(s.ops, kv.Op{Kind: kv.OpRead})
	}
	first := len(s.records)
	for len(s.views) < first+len(keys) {
		s.views = append(s.views, new(view))
	}
	ops, views := s.ops[:len(keys)], s.views[first:]
	for i, key := range keys {
		ops[i].Key, ops[i].Value = append(ops[i].Key[:0], key...), views[i].row[:0]
	}
	if err := w.session.Do(context.Background(), ops); err != nil {
		return err
	}
	for i := range ops {
		views[i].row = ops[i].Value
		if errors.Is(ops[i].Err, kv.ErrNotFound) {
			continue // deleted since the keys were listed
		}
		values, err := views[i].decode(fields)
		if err != nil {
			return fmt.Errorf("key %q: %w", keys[i], err)
		}
		// Move the view of a missing record behind the used ones.
		at := len(s.records) - first
		views[at], views[i] = views[i], views[at]
		s.records = append(s.records, values)
	}
	return nil
}

// Insert implements go-ycsb's DB. It replaces an existing record.
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

// Update implements go-ycsb's DB. One atomic RMW merges the fields into the record, or creates
// it.
func (db *DB) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	w, err := workerOf(ctx)
	if err != nil {
		return err
	}
	w.setKey(table, key)
	w.fields, w.made, w.merging = sorted(w.fields, values), false, nil
	w.change.Key = w.key
	err = w.session.Run(&w.change)
	if err == nil {
		err = w.merging
	}
	if err != nil {
		return db.check(fmt.Errorf("goycsb: update %s/%s: %w", table, key, err))
	}
	if db.keys != nil && w.made {
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

// Close implements go-ycsb's DB. It stores the ordered set of keys, if there is one, and
// closes the store.
func (db *DB) Close() error {
	var err error
	if db.keys != nil && db.save != nil {
		// The keys are stored first: a scan skips a key without a record, but cannot find a
		// record whose key is missing.
		err = db.save(db.keys.encode())
	}
	return errors.Join(err, db.store.Close())
}

// Err returns an error if operations have failed, also for missing records, with their number and the
// first one's error. go-ycsb's client only counts them.
func (db *DB) Err() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.failed == 0 {
		return nil
	}
	return fmt.Errorf("%d operations failed; the first: %w", db.failed, db.failure)
}

// check records err for Err, and returns it.
func (db *DB) check(err error) error {
	if err == nil {
		return nil
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.failed++; db.failed == 1 {
		db.failure = err
	}
	return err
}
