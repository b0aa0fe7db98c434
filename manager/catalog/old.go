package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/redykv/redykv/internal/dirs"
)

const oldFormatValue = "redykv manager catalog 1"

// OldStore keeps records by key. It is called by one goroutine at a time.
type OldStore interface {
	// Load calls record for every record, in the order of keys. The value is valid during
	// the call only.
	Load(record func(key string, value []byte) error) error
	// Apply changes records, all or none; a nil value deletes. The change is durable when
	// it returns. After an error the store cannot be used again, and the change may have
	// been made or not.
	Apply(changes map[string][]byte) error
	Close() error
}

// OldPebble is a store in a directory, a Pebble database.
type OldPebble struct {
	db     *pebble.DB
	lock   *pebble.Lock
	broken *pebbleLog // receives Pebble's fatal errors

	mu     sync.Mutex // held during writes and Close
	closed bool       // guarded by mu; Pebble panics at later writes
}

var errStoreClosed = errors.New("closed")

var _ OldStore = (*OldPebble)(nil)

// OpenOldPebble opens or creates the catalog in a state directory. If the store breaks while
// it is open, failed is called, on any goroutine. Errors are [ErrInUse], [ErrCorrupt],
// [ErrFormat], and those of the file system.
func OpenOldPebble(state string, log *slog.Logger, failed func(error)) (_ *OldPebble, err error) {
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
	s := &OldPebble{lock: lock, broken: &pebbleLog{log: log, failed: failed}}
	if s.db, err = s.broken.open(dir, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), lock.Close())
	}
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), s.Close())
	}
	return s, nil
}

// checkFormat writes the format record of a new store, and checks that of an old one.
func (s *OldPebble) checkFormat() error {
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
		return s.Apply(map[string][]byte{formatKey: []byte(oldFormatValue)})
	case format != oldFormatValue:
		return fmt.Errorf("%w: format %.40q, want %q", ErrFormat, format, oldFormatValue)
	}
	return nil
}

func (s *OldPebble) Load(entry func(key string, value []byte) error) (err error) {
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

func (s *OldPebble) Apply(changes map[string][]byte) error {
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
func (s *OldPebble) Close() error {
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
