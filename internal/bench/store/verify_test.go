package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// A store that returns another record's value, or none, fails the run in every mode.
func TestWrongAnswersAreFound(t *testing.T) {
	for _, size := range []int{8, 100} {
		for _, mode := range Modes {
			for want, spoil := range map[string]func(*kv.Session, []byte, []byte) error{
				"wrong value":          func(s *kv.Session, key, value []byte) error { return s.Upsert(key, value) },
				kv.ErrNotFound.Error(): func(s *kv.Session, key, _ []byte) error { return s.Delete(key) },
			} {
				spec := tiny()
				spec.ValueSize, spec.Modes, spec.Ops, spec.Threads = size, []Mode{mode}, []Op{Read}, []int{1}
				store, err := openStore(t.Context(), &spec, bench.OrQuiet(nil))
				if err != nil {
					t.Fatal(err)
				}
				w, err := newWorker(&spec, 0, store, make([]uint64, 1<<10))
				if err != nil {
					t.Fatal(err)
				}
				cells, _ := plan(&spec, nil)
				c := cells[len(cells)-1]
				if _, err := w.slice(t.Context(), c, 1); err != nil {
					t.Fatal(err)
				}
				key, value := make([]byte, ycsb.KeySize), make([]byte, size)
				next := *w.numbers[c.distribution]
				n := uint64(next.take(spec.Depth)[spec.Depth/2])
				record.PutKey(key, n)
				record.FillValue(value, n+1)
				if err := spoil(w.session, key, value); err != nil {
					t.Fatal(err)
				}
				if _, err := w.slice(t.Context(), c, 1); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s of %d bytes: record %d was spoiled and the slice ended with %v, want %q", mode, size, n, err, want)
				}
				if err := errors.Join(w.session.Close(), store.Close()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A run fails if the log has outgrown the memory in which it is updated in place.
func TestOutgrownMemoryIsFound(t *testing.T) {
	spec := tiny()
	store, err := kv.Open(kv.Options{
		Device: device.NewMemory(), KeySize: ycsb.KeySize, ValueSize: spec.ValueSize,
		Memory: spec.logBytes() / 2, PageSize: 4096, Records: spec.Records,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := inPlace(store, &spec); err != nil {
		t.Errorf("an empty store: %v", err)
	}
	if err := record.Load(t.Context(), store, spec.Records, spec.ValueSize, 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := inPlace(store, &spec); err == nil || !strings.Contains(err.Error(), "has outgrown its memory") {
		t.Errorf("a store of twice its memory: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
