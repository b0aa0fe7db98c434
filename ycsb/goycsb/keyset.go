package goycsb

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/google/btree"
)

// keySet is an ordered set of keys, safe for concurrent use.
type keySet struct {
	mu   sync.RWMutex // guards tree
	tree *btree.BTreeG[string]
}

// keySetDegree makes nodes of about 1 KiB.
const keySetDegree = 32

func newKeySet() *keySet {
	return &keySet{tree: btree.NewOrderedG[string](keySetDegree)}
}

func (s *keySet) insert(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.ReplaceOrInsert(key)
}

func (s *keySet) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.Delete(key)
}

// from appends to dst up to n keys in order, starting with the first at or after start.
func (s *keySet) from(dst []string, start string, n int) []string {
	if n <= 0 {
		return dst
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.tree.AscendGreaterOrEqual(start, func(key string) bool {
		dst = append(dst, key)
		n--
		return n > 0
	})
	return dst
}

// Encoding of a key set: all keys in order, each as its length (uvarint) and its bytes, then
// the xxhash of all of that in 8 bytes, little-endian.

// encode returns the encoding of the set.
func (s *keySet) encode() []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var data []byte
	s.tree.Ascend(func(key string) bool {
		data = binary.AppendUvarint(data, uint64(len(key)))
		data = append(data, key...)
		return true
	})
	return binary.LittleEndian.AppendUint64(data, xxhash.Sum64(data))
}

// decodeKeySet decodes the result of encode.
func decodeKeySet(data []byte) (*keySet, error) {
	body := len(data) - 8
	if body < 0 || binary.LittleEndian.Uint64(data[body:]) != xxhash.Sum64(data[:body]) {
		return nil, fmt.Errorf("key set of %d bytes: bad checksum", len(data))
	}
	s := newKeySet()
	for rest := data[:body]; len(rest) > 0; {
		key, after, err := nextBytes(rest)
		if err != nil {
			return nil, fmt.Errorf("key set: at byte %d: %w", body-len(rest), err)
		}
		s.tree.ReplaceOrInsert(string(key))
		rest = after
	}
	return s, nil
}
