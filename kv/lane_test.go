package kv

import (
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/index"
)

// TestLanesFindOverflowedEntries looks up keys in an index with twice as many entries as its
// first buckets can hold. A lane finds all of them and no other keys.
func TestLanesFindOverflowedEntries(t *testing.T) {
	const keys = 15 << index.MinBits
	for name, sizes := range map[string][2]int{"words": {8, 8}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			st := open(t, Options{
				Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1], Memory: 16 << 20, Records: 1, FixedIndex: true,
			})
			s := st.NewSession()
			for n := range uint64(keys) {
				if err := s.Upsert(key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			behind := 0
			for first := uint64(0); first < keys; first += laneSize - 1 {
				var ops [laneSize]Op
				l := s.filling
				for i := range ops {
					ops[i].Key = key8(first + uint64(i))
					l.ops[i] = &ops[i]
				}
				ops[laneSize-1].Key = key8(1<<40 + first) // not stored
				l.n = laneSize
				s.enter()
				s.hashLane(l)
				s.scan(l)
				behind += l.nBehind
				s.scanBehind(l)
				for i := range ops {
					want, _ := s.view.index.Find(st.hash(ops[i].Key))
					if l.places[i] != want {
						t.Errorf("key %x has its entry at %v, want %v", ops[i].Key, l.places[i], want)
					}
				}
				s.leave()
				l.n = 0
			}
			if behind < keys/4 {
				t.Errorf("only %d of %d keys were looked up in overflow buckets", behind, keys)
			}
			closeAll(t, s, st)
		})
	}
}
