// Package catalog stores what a manager must not forget: the records of VMs and caches,
// and what the manager itself has learnt and promised. A [Store] keeps records by key and
// changes several of them at once; [Changes] and [Contents] are the records, in the
// messages of internal/api's catalogv1.
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

// Store keeps a catalog's entries where a restart finds them. The catalog is its
// only caller, one call at a time.
type Store interface {
	// Load calls entry for every entry there is, in the order of their keys. The
	// value is entry's for the call only.
	Load(entry func(key string, value []byte) error) error
	// Apply changes entries, all of them or none; a nil value deletes. The change
	// is durable when it returns. After an error the store is of no further use,
	// and what it holds is what it held before, or what it was to hold.
	Apply(changes map[string][]byte) error
	Close() error
}

// Why a state directory cannot be used.
var (
	// ErrInUse says that another manager uses the state directory.
	ErrInUse = errors.New("state directory is in use by another manager")
	// ErrCorrupt says that what the state directory holds cannot be read.
	ErrCorrupt = errors.New("state directory is damaged")
	// ErrFormat says that the state directory was written by another version,
	// or by something else.
	ErrFormat = errors.New("state directory has another format")
)

// What a state directory has.
const (
	dirName = "catalog"
	// VMsDir belongs to a local allocator.
	VMsDir = "vms"
)

// CheckDir refuses a directory that holds files of another program.
func CheckDir(state string) error {
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
		case dirName:
			return nil
		case VMsDir, "lost+found":
		default:
			others = e.Name()
		}
	}
	if others != "" {
		return fmt.Errorf("%w: %s holds no manager's catalog, but %s", ErrFormat, state, others)
	}
	return nil
}
