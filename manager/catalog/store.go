// Package catalog keeps a manager's records. A [Store] keeps them in memory, in a directory
// of this machine ([OpenPebble]) or in etcd, and elects one leader among the managers that
// use it. The leader has a [Term]: it loads all records once, and changes some of them
// atomically, each only if it has the version that the leader knows.
//
// [Open] opens the store that a URL names.
package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// A Store keeps a manager's records. Its methods can be called concurrently.
type Store interface {
	// Campaign waits until the caller is the leader. url is that of its control API, which
	// Leader returns to the others. No other manager has it: a store in etcd deposes an earlier
	// process with the same url in its first Campaign. A Store has at most one term at a time: Campaign waits
	// until the earlier one has ended. It waits also while the store is unavailable or
	// full. Errors are ctx's, ErrFormat, ErrCorrupt, and others that need an operator.
	Campaign(ctx context.Context, url string) (Term, error)
	// Leader returns the URL of the present leader. It is empty if there is none, or if
	// none is known: a store in etcd observes the leader during Campaign and its own term.
	// Leader does not wait.
	Leader() string
	// Trouble returns, in one line, why the store cannot be used and for how long. It is nil
	// if the store can be used, as far as is known. Trouble does not wait.
	Trouble() error
	// Shared reports whether several managers can use the store, of which one leads. Only
	// one can have any other store open.
	Shared() bool
	// Close ends the term and releases the store. It does not wait for a server. Closing
	// again does nothing.
	Close() error
}

// A Term is the time during which one manager leads. Its methods can be called
// concurrently. Commits are made one after another: a caller with many changes groups them.
type Term interface {
	// Lost returns a channel that is closed when the term has ended: by Resign, by Close,
	// because the store failed, or because another manager may lead.
	Lost() <-chan struct{}
	// Load calls each for every record, in the order of keys. The record's value is valid
	// during the call only. Load returns each's first error. each must not call the term.
	Load(ctx context.Context, each func(Record) error) error
	// Commit makes all changes or none. When it returns nil, they are durable. Without
	// changes, it confirms that the term has not ended and that the store can be written.
	//
	//   - ErrConflict: a record does not have the change's version. Nothing was changed.
	//   - ErrNotLeader: the term has ended. Nothing was changed, unless the error is
	//     ErrUnavailable, too.
	//   - ErrUnavailable, ErrFull: the changes were not made, or this is not known. The
	//     caller repeats the same Commit until there is another result; the changes are
	//     made once. A different Commit is refused until then. The term goes on.
	//   - Any other error: the term has ended, and the changes were made or not; only
	//     changes that break a rule (MaxChanges, MaxBytes, a key twice) end nothing.
	Commit(ctx context.Context, changes []Change) error
	// Resign ends the term. The next candidate need not wait for the lease.
	Resign(ctx context.Context) error
}

// Record is a stored record.
type Record struct {
	Key     string
	Value   []byte
	Version int64 // number of writes since the record was created, from 1
}

// Change is a change of a record.
type Change struct {
	Key     string
	Value   []byte // nil: the record is deleted
	Version int64  // the record's present version; 0: there is no record
}

// Limits of a Commit. etcd's defaults are 128 operations and 1.5 MiB.
const (
	MaxChanges = 120
	MaxBytes   = 1 << 20 // of keys and values together
)

var (
	// ErrConflict reports a record of another version than expected.
	ErrConflict = errors.New("record was changed by another manager")
	// ErrNotLeader reports a term that has ended.
	ErrNotLeader = errors.New("this manager does not lead")
	// ErrUnavailable reports a store that did not answer in time.
	ErrUnavailable = errors.New("catalog is unavailable")
	// ErrFull reports a store that takes no more data.
	ErrFull = errors.New("catalog is full")
	// ErrInUse reports that another manager uses the state directory.
	ErrInUse = errors.New("state directory is in use by another manager")
	// ErrCorrupt reports records that cannot be read.
	ErrCorrupt = errors.New("catalog is damaged")
	// ErrFormat reports a catalog of another version, or of another program.
	ErrFormat = errors.New("catalog has another format")
)

// The record that identifies a catalog and its version, and the prefix of a manager's
// records.
const (
	formatKey    = "format"
	formatValue  = "redykv manager catalog 3"
	recordPrefix = "record/"
	recordsEnd   = "record0" // the first key after those with the prefix
)

// check returns an error if changes break a rule.
func check(changes []Change) error {
	if len(changes) > MaxChanges {
		return fmt.Errorf("catalog: %d changes in a commit: at most %d", len(changes), MaxChanges)
	}
	keys := make(map[string]struct{}, len(changes))
	size := 0
	for _, c := range changes {
		if c.Key == "" || c.Version < 0 {
			return fmt.Errorf("catalog: change of record %.40q, version %d", c.Key, c.Version)
		}
		if _, twice := keys[c.Key]; twice {
			return fmt.Errorf("catalog: record %.40q is in a commit twice", c.Key)
		}
		keys[c.Key] = struct{}{}
		size += len(c.Key) + len(c.Value)
	}
	if size > MaxBytes {
		return fmt.Errorf("catalog: %d bytes in a commit: at most %d", size, MaxBytes)
	}
	return nil
}

var errClosed = errors.New("catalog: store is closed")

func conflict(c Change, version int64) error {
	return fmt.Errorf("%w: %.40q has version %d, not %d", ErrConflict, c.Key, version, c.Version)
}

// Same reports whether two Commits have equal changes.
func Same(a, b []Change) bool {
	return slices.EqualFunc(a, b, func(a, b Change) bool {
		return a.Key == b.Key && a.Version == b.Version && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
	})
}
