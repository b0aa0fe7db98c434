package manager

import "errors"

// store keeps a catalog's entries where a restart finds them. The catalog is its
// only caller, one call at a time.
type store interface {
	// load calls entry for every entry there is, in the order of their keys. The
	// value is entry's for the call only.
	load(entry func(key string, value []byte) error) error
	// apply changes entries, all of them or none; a nil value deletes. The change
	// is durable when it returns. After an error the store is of no further use,
	// and what it holds is what it held before, or what it was to hold.
	apply(changes map[string][]byte) error
	close() error
}

// Why a state directory cannot be used.
var (
	errStore = errors.New("catalog not written")
	// ErrStateInUse says that another manager uses the state directory.
	ErrStateInUse = errors.New("state directory is in use by another manager")
	// ErrStateCorrupt says that what the state directory holds cannot be read.
	ErrStateCorrupt = errors.New("state directory is damaged")
	// ErrStateFormat says that the state directory was written by another version,
	// or by something else.
	ErrStateFormat = errors.New("state directory has another format")
	// ErrStateAddress says that the caches and servers that the state directory knows
	// call a manager at another address, which is not to be left without a word.
	ErrStateAddress = errors.New("state directory is that of a manager at another address")
)
