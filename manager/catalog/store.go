// Package catalog stores a manager's durable state: the records of VMs and caches, and the
// manager's own measurements and settings. A [Store] keeps records by key and changes
// several of them atomically. [Changes] and [Contents] are the records, as messages of
// internal/api's catalogv1.
//
//	vm/ORDER  catalogv1.Vm: each VM that is not lost
//	cache/ID  catalogv1.Cache: each cache, with the VMs that it has lost
//	token     the secret from which the tokens of launched servers are made
//	learnt    catalogv1.Learnt
//	setting   catalogv1.Setting
//	epoch     that of the last manager: 8 bytes, big-endian
//	format    the version of this list
package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Store keeps records by key. It is called by one goroutine at a time.
type Store interface {
	// Load calls record for every record, in the order of keys. The value is valid during
	// the call only.
	Load(record func(key string, value []byte) error) error
	// Apply changes records, all or none; a nil value deletes. The change is durable when
	// it returns. After an error the store cannot be used again, and the change may have
	// been made or not.
	Apply(changes map[string][]byte) error
	Close() error
}

// Errors of state directories.
var (
	// ErrInUse reports that another manager uses the state directory.
	ErrInUse = errors.New("state directory is in use by another manager")
	// ErrCorrupt reports records that cannot be read.
	ErrCorrupt = errors.New("state directory is damaged")
	// ErrFormat reports a state directory of another version, or of another program.
	ErrFormat = errors.New("state directory has another format")
)

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
