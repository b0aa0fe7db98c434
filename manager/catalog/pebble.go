package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/redykv/redykv/internal/dirs"
)

// The record that identifies a catalog and its version.
const (
	formatKey   = "format"
	formatValue = "redykv manager catalog 1"
)

// Pebble is a store in a directory, a Pebble database.
type Pebble struct {
	db     *pebble.DB
	lock   *pebble.Lock
	broken *pebbleLog // receives Pebble's fatal errors

	mu     sync.Mutex // held during writes and Close
	closed bool       // guarded by mu; Pebble panics at later writes
}

var errStoreClosed = errors.New("closed")

var _ Store = (*Pebble)(nil)

// OpenPebble opens or creates the catalog in a state directory. If the store breaks while
// it is open, failed is called, on any goroutine. Errors are [ErrInUse], [ErrCorrupt],
// [ErrFormat], and those of the file system.
func OpenPebble(state string, log *slog.Logger, failed func(error)) (_ *Pebble, err error) {
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
	s := &Pebble{lock: lock, broken: &pebbleLog{log: log, failed: failed}}
	if s.db, err = s.broken.open(dir, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), lock.Close())
	}
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), s.Close())
	}
	return s, nil
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

// checkFormat writes the format record of a new store, and checks that of an old one.
func (s *Pebble) checkFormat() error {
	entries := 0
	format := ""
	err := s.Load(func(key string, value []byte) error {
		entries++
		if key == formatKey {
			format = string(value)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case entries == 0:
		return s.Apply(map[string][]byte{formatKey: []byte(formatValue)})
	case format != formatValue:
		return fmt.Errorf("%w: format %.40q, want %q", ErrFormat, format, formatValue)
	}
	return nil
}

func (s *Pebble) Load(entry func(key string, value []byte) error) (err error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if err := entry(string(it.Key()), value); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return s.broken.error()
}

func (s *Pebble) Apply(changes map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStoreClosed
	}
	if err := s.broken.error(); err != nil {
		return err
	}
	batch := s.db.NewBatch()
	for key, value := range changes {
		var err error
		if value == nil {
			err = batch.Delete([]byte(key), nil)
		} else {
			err = batch.Set([]byte(key), value, nil)
		}
		if err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	// Pebble reports a failed write to its logger, and returns nil.
	if err := errors.Join(s.db.Apply(batch, pebble.Sync), s.broken.error()); err != nil {
		return err
	}
	return batch.Close()
}

// Close closes the store. It does not close a database that could not write, as Pebble
// would hang then. Closing again does nothing.
func (s *Pebble) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if !s.broken.stuck.Load() {
		err = s.db.Close()
	}
	return errors.Join(err, s.lock.Close())
}

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
