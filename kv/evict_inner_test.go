package kv

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// TestEvictionOfInnerRecords: inner records are copied while their key exists, and dropped after it was
// evicted. None of them is counted.
func TestEvictionOfInnerRecords(t *testing.T) {
	var inner, dropped, told atomic.Int64
	opts := evicting(Eviction{
		Recent: func(key []byte) bool { return string(key) == "kept" },
		Evicted: func(key []byte) {
			if bytes.HasPrefix(key, []byte("inner")) {
				told.Add(1)
			}
		},
	})
	opts.Inner = func(key []byte) bool { return bytes.HasPrefix(key, []byte("inner")) }
	opts.Orphans = func(_ context.Context, s *Session, keys [][]byte, orphan []bool) error {
		for i, key := range keys {
			inner.Add(1)
			_, owner, _ := bytes.Cut(key, []byte(":")) // inner 3:kept
			_, err := s.Read(owner, nil)
			if orphan[i] = err != nil; orphan[i] {
				dropped.Add(1)
			}
		}
		return nil
	}
	st := open(t, opts)
	defer closeAll(t, st)
	ctx := context.Background()
	put := func(key string) {
		t.Helper()
		if err := st.Upsert(ctx, []byte(key), bytes.Repeat([]byte("v"), 100)); err != nil {
			t.Fatal(err)
		}
	}
	const nodes = 8
	for _, owner := range []string{"kept", "gone"} {
		put(owner)
		for i := range nodes {
			put(fmt.Sprint("inner ", i, ":", owner))
		}
	}
	for i := 0; dropped.Load() < nodes || inner.Load() < 10*nodes; i++ {
		put(fmt.Sprint("other", i))
	}
	awaitLog(t, st, opts.Eviction.MaxLog)
	for _, owner := range []string{"kept", "gone"} {
		for i := range nodes {
			_, err := st.Read(ctx, fmt.Appendf(nil, "inner %d:%s", i, owner), nil)
			if want := owner == "kept"; want != (err == nil) {
				t.Errorf("node %d of %s: %v", i, owner, err)
			}
		}
	}
	if dropped.Load() < nodes || told.Load() != 0 {
		t.Errorf("%d orphans were dropped, and %d told", dropped.Load(), told.Load())
	}
	if all, _, _ := st.KeyCount(); all != liveKeys(t, st) {
		t.Errorf("counted %d keys, there are %d", all, liveKeys(t, st))
	}
}
