// Package peers opens embedded key-value stores of other projects, to be measured
// beside redykv under the same load: Pebble, Badger and bbolt.
//
// They are configured to do as little as possible, short of keeping their files in memory:
// nothing is synced or compressed, and their caches are bounded by the memory that redykv
// has. They read their files through the kernel's page cache, or map them, where redykv's
// SSD tier uses direct I/O: they do not read the disk if the database fits into free memory.
package peers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// ErrNotFound means that the store does not have the key.
var ErrNotFound = errors.New("peers: no such key")

// Store is an embedded store. It is safe for concurrent use.
type Store interface {
	// Write stores pairs of keys and values, together.
	Write(pairs []Pair) error
	// Delete removes a key.
	Delete(key []byte) error
	// NewReader returns a reader for one goroutine.
	NewReader() (Reader, error)
	// Scan calls each with up to n pairs from a key on, in the order of keys. The slices
	// are valid until each returns.
	Scan(from []byte, n int, each func(key, value []byte)) error
	// Settle completes the store's background work.
	Settle(ctx context.Context) error
	Close() error
}

// Pair is a key with its value.
type Pair struct{ Key, Value []byte }

// Reader reads for one goroutine.
type Reader interface {
	// Get appends the value of a key to dst.
	Get(key, dst []byte) ([]byte, error)
	Close() error
}

// Options limit a store.
type Options struct {
	Dir    string // an existing directory for its files
	Memory int64  // bytes of cache
}

// peer is a store that can be opened.
type peer struct {
	name, module string
	open         func(Options) (Store, error)
}

var all = []peer{
	{"pebble", "github.com/cockroachdb/pebble/v2", openPebble},
	{"badger", "github.com/dgraph-io/badger/v4", openBadger},
	{"bbolt", "go.etcd.io/bbolt", openBbolt},
}

// Names lists the known stores.
func Names() []string {
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	return names
}

func find(name string) (peer, error) {
	i := slices.IndexFunc(all, func(p peer) bool { return p.name == name })
	if i < 0 {
		return peer{}, fmt.Errorf("unknown store %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Open opens a store by name. The caller closes it.
func Open(name string, opts Options) (Store, error) {
	p, err := find(name)
	if err != nil {
		return nil, err
	}
	s, err := p.open(opts)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", name, opts.Dir, err)
	}
	return s, nil
}

// Module returns a store's Go module with its version in this program.
func Module(name string) string {
	p, err := find(name)
	if err != nil {
		return name
	}
	version := "of unknown version"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == p.module {
				version = dep.Version
			}
		}
	}
	return p.module + " " + version
}

// Describe describes a store's version and configuration.
func Describe(name string) string {
	return Module(name) + ": nothing synced or compressed; its files are read by way of the page cache"
}
