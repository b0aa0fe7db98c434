package manager

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/redykv/redykv/internal/dirs"
)

// The entry that says what a Pebble is.
const (
	formatKey   = "format"
	formatValue = "redykv manager catalog 1"
)

// pebbleStore is a store in a directory.
type pebbleStore struct {
	db     *pebble.DB
	lock   *pebble.Lock
	broken *pebbleLog // which Pebble tells of what it cannot go on after

	mu     sync.Mutex // held while it is written or closed
	closed bool       // Pebble panics at who writes then
}

var errStoreClosed = errors.New("closed")

var _ store = (*pebbleStore)(nil)

// openPebbleStore opens or makes the catalog in a state directory. failed is told
// if the store breaks while it is open, on any goroutine. Errors are ErrStateInUse,
// ErrStateCorrupt, ErrStateFormat, and those of the file system.
func openPebbleStore(state string, log *slog.Logger, failed func(error)) (_ *pebbleStore, err error) {
	dir := filepath.Join(state, catalogDir)
	if err := checkState(state); err != nil {
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
		return nil, fmt.Errorf("%w: %s", ErrStateInUse, state)
	}
	s := &pebbleStore{lock: lock, broken: &pebbleLog{log: log, failed: failed}}
	if s.db, err = s.broken.open(dir, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), lock.Close())
	}
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", state, err), s.close())
	}
	return s, nil
}

// What a state directory has.
const (
	catalogDir = "catalog"
	vmsDir     = "vms" // of a local allocator
)

// checkState refuses a directory that somebody uses for something else.
func checkState(state string) error {
	entries, err := os.ReadDir(state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made
	}
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	others := ""
	for _, e := range entries {
		switch e.Name() {
		case catalogDir:
			return nil
		case vmsDir, "lost+found":
		default:
			others = e.Name()
		}
	}
	if others != "" {
		return fmt.Errorf("%w: %s holds no manager's catalog, but %s", ErrStateFormat, state, others)
	}
	return nil
}

// open turns everything that Pebble finds wrong into an error: some damage it
// answers with a panic.
func (l *pebbleLog) open(dir string, lock *pebble.Lock) (db *pebble.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrStateCorrupt, p)
		}
	}()
	opts := &pebble.Options{
		Logger:             l,
		EventListener:      &pebble.EventListener{DataCorruption: func(i pebble.DataCorruptionInfo) { l.fail(fmt.Errorf("%w: %s", ErrStateCorrupt, i)) }},
		FormatMajorVersion: pebble.FormatNewest,
		FS:                 vfs.Default, // without a watch for slow disks, which goes on after a refusal
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
	return nil, fmt.Errorf("%w: %w", ErrStateCorrupt, err)
}

// checkFormat marks a new store, and refuses one that somebody else has made.
func (s *pebbleStore) checkFormat() error {
	entries := 0
	format := ""
	err := s.load(func(key string, value []byte) error {
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
		return s.apply(map[string][]byte{formatKey: []byte(formatValue)})
	case format != formatValue:
		return fmt.Errorf("%w: it says %.40q, want %q", ErrStateFormat, format, formatValue)
	}
	return nil
}

func (s *pebbleStore) load(entry func(key string, value []byte) error) (err error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStateCorrupt, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStateCorrupt, err)
		}
		if err := entry(string(it.Key()), value); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrStateCorrupt, err)
	}
	return s.broken.error()
}

func (s *pebbleStore) apply(changes map[string][]byte) error {
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
	// Pebble says through its logger that it could not write, and returns nil.
	if err := errors.Join(s.db.Apply(batch, pebble.Sync), s.broken.error()); err != nil {
		return err
	}
	return batch.Close()
}

// close leaves a Pebble alone that could not write: its parts wait for each other.
// Closing again does nothing.
func (s *pebbleStore) close() error {
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

// pebbleLog is Pebble's logger. Pebble expects the process to end at Fatalf; what
// comes here instead ends the use of the store.
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
