package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/redykv/redykv/internal/dirs"
)

// Pebble is a store in a directory, a Pebble database. The lock of the directory makes its
// manager the leader.
//
// A record's key has the prefix recordPrefix. Its value begins with its version, a varint.
type Pebble struct{ *local }

// database is a backend.
type database struct {
	db   *pebble.DB
	lock *pebble.Lock
	log  *pebbleLog // receives Pebble's fatal errors
}

// OpenPebble opens or creates the catalog in a state directory. Errors are [ErrInUse],
// [ErrCorrupt], [ErrFormat], and those of the file system.
//
// If the database cannot be written any more, the term ends, and Campaign returns the error.
func OpenPebble(state string, log *slog.Logger) (_ *Pebble, err error) {
	dir := filepath.Join(state, dirName)
	if err := CheckDir(state); err != nil {
		return nil, err
	}
	if err := dirs.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, vfs.Default)
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, fmt.Errorf("state directory: %w", err)
		}
		return nil, fmt.Errorf("%w: %s", ErrInUse, state)
	}
	d := &database{lock: lock, log: &pebbleLog{log: log}}
	e := newElectorate(d)
	d.log.failed = func(error) { e.fail() }
	if d.db, err = d.log.open(dir, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), lock.Close())
	}
	if err := d.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), d.close())
	}
	return &Pebble{e.join()}, nil
}

// checkFormat writes the format record of a new store, and checks that of an old one.
func (d *database) checkFormat() error {
	it, err := d.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	empty := !it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if empty {
		return errors.Join(d.db.Set([]byte(formatKey), []byte(formatValue), pebble.Sync), d.error())
	}
	format, err := d.get(formatKey)
	if err == nil && string(format) != formatValue {
		err = fmt.Errorf("%w: %.40q, want %q", ErrFormat, format, formatValue)
	}
	return err
}

// get returns a copy of the value of a key; nil: there is none.
func (d *database) get(key string) ([]byte, error) {
	value, closer, err := d.db.Get([]byte(key))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	value = append([]byte{}, value...)
	return value, closer.Close()
}

func (d *database) load(each func(Record) error) (err error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte(recordPrefix), UpperBound: []byte(recordsEnd)})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		key := string(it.Key()[len(recordPrefix):])
		version, value, err := decode(key, value)
		if err != nil {
			return err
		}
		if err := each(Record{key, value, version}); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return d.error()
}

// decode returns the version and the value of a record.
func decode(key string, b []byte) (version int64, value []byte, err error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v == 0 || int64(v) < 0 {
		return 0, nil, fmt.Errorf("%w: record %.40q has no version", ErrCorrupt, key)
	}
	return int64(v), b[n:], nil
}

func (d *database) version(key string) (int64, error) {
	value, err := d.get(recordPrefix + key)
	if err != nil || value == nil {
		return 0, err
	}
	version, _, err := decode(key, value)
	return version, err
}

func (d *database) write(changes []Change) error {
	if len(changes) == 0 { // Pebble skips empty batches
		return errors.Join(d.db.LogData(nil, pebble.Sync), d.error())
	}
	batch := d.db.NewBatch()
	for _, c := range changes {
		key := []byte(recordPrefix + c.Key)
		var err error
		if c.Value == nil {
			err = batch.Delete(key, nil)
		} else {
			err = batch.Set(key, append(binary.AppendUvarint(nil, uint64(c.Version+1)), c.Value...), nil)
		}
		if err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	// Pebble reports a failed write to its logger, and returns nil.
	if err := errors.Join(d.db.Apply(batch, pebble.Sync), d.error()); err != nil {
		return err
	}
	return batch.Close()
}

// close closes the database. One that could not write stays open, as Pebble would hang.
func (d *database) close() (err error) {
	if !d.log.stuck.Load() {
		err = d.db.Close()
	}
	return errors.Join(err, d.lock.Close())
}

func (d *database) error() error { return d.log.error() }

// pebbleLog is Pebble's logger. Pebble expects Fatalf to end the process; here it makes the
// store fail.
type pebbleLog struct {
	log    *slog.Logger
	failed func(error)
	err    atomic.Pointer[error]
	stuck  atomic.Bool
}

func (l *pebbleLog) error() error {
	if err := l.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *pebbleLog) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l *pebbleLog) Errorf(format string, args ...any) { l.log.Warn(fmt.Sprintf(format, args...)) }

func (l *pebbleLog) Fatalf(format string, args ...any) {
	l.stuck.Store(true)
	l.fail(fmt.Errorf(format, args...))
}

func (l *pebbleLog) fail(err error) {
	if l.err.CompareAndSwap(nil, &err) {
		l.failed(err)
	}
}

// open opens the database. A panic, which some damage causes, becomes an error.
func (l *pebbleLog) open(dir string, lock *pebble.Lock) (db *pebble.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	opts := &pebble.Options{
		Logger:             l,
		EventListener:      &pebble.EventListener{DataCorruption: func(i pebble.DataCorruptionInfo) { l.fail(fmt.Errorf("%w: %s", ErrCorrupt, i)) }},
		FormatMajorVersion: pebble.FormatNewest,
		FS:                 vfs.Default, // without a monitor of slow disks, which would outlive a failed Open
		Lock:               lock,
	}
	db, err = pebble.Open(dir, opts)
	switch {
	case err == nil && l.error() != nil:
		return nil, errors.Join(l.error(), db.Close())
	case err == nil:
		return db, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// Entries of a state directory.
const (
	dirName = "catalog"
	// VMsDir belongs to a local allocator.
	VMsDir = "vms"
)

// CheckDir refuses a directory that holds files of another program.
func CheckDir(state string) error {
	entries, err := os.ReadDir(state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it will be created
	}
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	others := ""
	for _, e := range entries {
		switch e.Name() {
		case dirName:
			return nil
		case VMsDir, "lost+found":
		default:
			others = e.Name()
		}
	}
	if others != "" {
		return fmt.Errorf("%w: %s has no manager's catalog, but contains %s", ErrFormat, state, others)
	}
	return nil
}
