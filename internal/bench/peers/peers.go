// Package peers opens embedded key-value stores of other projects, to be measured
// beside redykv under the same load: Pebble, Badger and bbolt.
//
// They are configured to do as little as possible, short of keeping their files in memory:
// nothing is synced or compressed, and their memory is bounded by what redykv has: caches,
// indexes and the tables of new writes together. They read their files through the kernel's page cache, or map them, where redykv's
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
	Dir     string // an existing directory for its files
	Memory  int64  // bytes of its caches, indexes and tables of new writes together
	Records int64  // records that it will have
}

// peer is a store that can be opened.
type peer struct {
	name, module string
	open         func(Options) (Store, error)
	env          []string // see Environment
	note         string   // on what its figures depend on
}

var all = []peer{
	{"pebble", "github.com/cockroachdb/pebble/v2", openPebble, []string{"MALLOC_ARENA_MAX=1"}, "; it has no log of its writes"},
	{"badger", "github.com/dgraph-io/badger/v4", openBadger, nil, "; they are mapped without advice to the kernel, so that a miss reads as much as the disk's read-ahead (read_ahead_kb)"},
	{"bbolt", "go.etcd.io/bbolt", openBbolt, nil, ""},
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

// Environment returns what a process with a store has in its environment when it starts, so
// that the store keeps to its memory. Pebble's block cache is memory of the C library, which
// with many threads has many arenas: blocks that are freed in one are not used by the others, and
// the process grows beyond the size of its cache. So it has one arena.
func Environment(name string) []string {
	p, err := find(name)
	if err != nil {
		return nil
	}
	return p.env
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
	text := Module(name) + ": nothing synced or compressed; its files are read by way of the page cache"
	if p, err := find(name); err == nil {
		text += p.note
	}
	return text
}
