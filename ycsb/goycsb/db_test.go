package goycsb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// openDB returns a DB in memory with scans, and the context of one worker.
func openDB(t *testing.T) (*DB, context.Context) {
	t.Helper()
	store, err := kv.Open(kv.Options{Device: device.NewMemory(), Memory: 1 << 20, Records: 1000})
	if err != nil {
		t.Fatal(err)
	}
	db := NewDB(store)
	db.keys = newKeySet()
	ctx := db.InitThread(t.Context(), 0, 1)
	t.Cleanup(func() {
		db.CleanupThread(ctx)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, ctx
}

func fields(pairs ...string) map[string][]byte {
	m := make(map[string][]byte)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = []byte(pairs[i+1])
	}
	return m
}

func TestDB(t *testing.T) {
	db, ctx := openDB(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(table, key string, names []string, want map[string][]byte) {
		t.Helper()
		got, err := db.Read(ctx, table, key, names)
		if err != nil || !equalFields(got, want) {
			t.Fatalf("%s/%s is %q, %v; want %q", table, key, got, err, want)
		}
	}
	must(db.Insert(ctx, "t", "k1", fields("f0", "a", "f1", "b")))
	expect("t", "k1", nil, fields("f0", "a", "f1", "b"))
	expect("t", "k1", []string{"f1", "f9"}, fields("f1", "b"))

	must(db.Update(ctx, "t", "k1", fields("f1", "longer than before", "f2", "c")))
	expect("t", "k1", nil, fields("f0", "a", "f1", "longer than before", "f2", "c"))

	must(db.Insert(ctx, "t", "k1", fields("f5", "anew")))
	expect("t", "k1", nil, fields("f5", "anew"))

	must(db.Update(ctx, "t", "k2", fields("f0", "made by an update")))
	expect("t", "k2", nil, fields("f0", "made by an update"))

	// Tables and keys are separate.
	must(db.Insert(ctx, "tk", "1", fields("f0", "another table")))
	expect("t", "k1", nil, fields("f5", "anew"))

	must(db.Delete(ctx, "t", "k1"))
	must(db.Delete(ctx, "t", "never there"))
	if _, err := db.Read(ctx, "t", "k1", nil); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("a deleted record reads as %v", err)
	}
	if err := db.Err(); !errors.Is(err, kv.ErrNotFound) || !strings.HasPrefix(err.Error(), "1 operations failed") {
		t.Errorf("a read of a missing record is no failure: %v", err)
	}
}

// TestReadOutlivesUpdate checks that the result of a read is valid until the next read, even
// after updates: the client compares it then.
func TestReadOutlivesUpdate(t *testing.T) {
	db, ctx := openDB(t)
	old := fields("f0", "old", "f1", "same")
	if err := db.Insert(ctx, "t", "k", old); err != nil {
		t.Fatal(err)
	}
	read, err := db.Read(ctx, "t", "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		db.Update(ctx, "t", "k", fields("f0", "new")), db.Update(ctx, "t", "k", fields("f1", "of another length")),
		db.Insert(ctx, "t", "l", fields("f0", "xxx", "f1", "xxxx")), db.Delete(ctx, "t", "k"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if !equalFields(read, old) {
		t.Errorf("what was read has become %q", read)
	}
}

// TestReadAllocatesNothing checks that reads allocate nothing after the first row of a shape.
func TestReadAllocatesNothing(t *testing.T) {
	testrun.SkipRaced(t, "the detector allocates")
	db, ctx := openDB(t)
	for _, key := range []string{"k", "l"} {
		if err := db.Insert(ctx, "t", key, fields("f0", "value of "+key, "f1", "b")); err != nil {
			t.Fatal(err)
		}
	}
	names, update := []string{"f0", "f1"}, fields("f1", "c")
	allocs := testrun.AllocsPerRun(100, func() {
		for _, key := range []string{"k", "l"} {
			read, err := db.Read(ctx, "t", key, names)
			if err != nil || string(read["f0"]) != "value of "+key {
				t.Fatalf("%s: %q, %v", key, read, err)
			}
		}
		if err := db.Update(ctx, "t", "k", update); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations for two reads and an update", allocs)
	}
}

func TestScan(t *testing.T) {
	db, ctx := openDB(t)
	for i := range 20 {
		key := fmt.Sprintf("k%02d", i)
		if err := db.Insert(ctx, "t", key, fields("key", key)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Insert(ctx, "u", "k00", fields("key", "of another table")); err != nil {
		t.Fatal(err)
	}
	if err := db.Delete(ctx, "t", "k11"); err != nil {
		t.Fatal(err)
	}
	db.keys.insert(storeKey("t", "k12a")) // a key without a record
	for _, tc := range []struct {
		start string
		n     int
		want  []string
	}{
		{"k10", 3, []string{"k10", "k12", "k13"}},
		{"k12a", 2, []string{"k13", "k14"}}, // starts at the key without a record
		{"k095", 1, []string{"k10"}},
		{"k18", 10, []string{"k18", "k19"}}, // stops before the next table
		{"z", 5, nil},
		{"k00", 0, nil},
	} {
		records, err := db.Scan(ctx, "t", tc.start, tc.n, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range records {
			got = append(got, string(r["key"]))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("scan of %d from %s: %q, want %q", tc.n, tc.start, got, tc.want)
		}
	}
	db.keys = nil
	if _, err := db.Scan(ctx, "t", "k", 1, nil); !errors.Is(err, ErrNoScan) || !errors.Is(db.Err(), ErrNoScan) {
		t.Errorf("scan without an order: %v", err)
	}
}

// TestUpdatesMerge checks that concurrent updates of different fields of a record all take
// effect.
func TestUpdatesMerge(t *testing.T) {
	db, ctx := openDB(t)
	const workers, updates = 4, 200
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			ctx := db.InitThread(context.Background(), i, workers)
			defer db.CleanupThread(ctx)
			for n := range updates {
				if err := db.Update(ctx, "t", "k", fields(fmt.Sprintf("f%d", i), fmt.Sprint(n))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	got, err := db.Read(ctx, "t", "k", nil)
	last := fmt.Sprint(updates - 1)
	if want := fields("f0", last, "f1", last, "f2", last, "f3", last); err != nil || !equalFields(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// storeKey returns the store's key of a record.
func storeKey(table, key string) string {
	var w worker
	w.setKey(table, key)
	return string(w.key)
}

// TestDBTellsOfBadRows checks that a malformed row is an error of Err, and not only counted.
func TestDBTellsOfBadRows(t *testing.T) {
	db, ctx := openDB(t)
	if err := db.store.Upsert(context.Background(), []byte(storeKey("t", "k")), []byte("\x05abc")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Read(ctx, "t", "k", nil); !errors.Is(err, errBadRow) || !errors.Is(db.Err(), errBadRow) {
		t.Errorf("read: %v", err)
	}
	if err := db.Update(ctx, "t", "k", fields("f", "v")); !errors.Is(err, errBadRow) {
		t.Errorf("update: %v", err)
	}
	if _, err := db.Scan(ctx, "t", "", 1, nil); err != nil {
		t.Errorf("scan of a set without the key: %v", err)
	}
}

// TestDBKeepsTablesApart checks that different pairs of table and key have different store
// keys.
func TestDBKeepsTablesApart(t *testing.T) {
	db, ctx := openDB(t)
	names := [][2]string{
		{"usertable", "k"}, {"", "k"}, {"", "usertablek"}, {"", ""}, {"usertable", ""}, {"k", ""}, {"usertabl", "ek"}, {"\x00", "k"},
	}
	for i, name := range names {
		if err := db.Insert(ctx, name[0], name[1], fields("f", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range names {
		if got, err := db.Read(ctx, name[0], name[1], nil); err != nil || !equalFields(got, fields("f", fmt.Sprint(i))) {
			t.Errorf("%q: %q, %v, want %d", name, got, err, i)
		}
	}
}

// TestDBFindsItsWorker checks that the worker is found through a context derived from
// InitThread's, which keeps the values of its parent.
func TestDBFindsItsWorker(t *testing.T) {
	type key string
	db, _ := openDB(t)
	ctx := db.InitThread(context.WithValue(t.Context(), key("a"), 1), 0, 1)
	defer db.CleanupThread(ctx)
	wrapped := context.WithValue(ctx, key("b"), 2)
	if err := db.Insert(wrapped, "t", "k", fields("f", "v")); err != nil {
		t.Fatal(err)
	}
	if wrapped.Value(key("a")) != 1 || wrapped.Value(key("b")) != 2 || wrapped.Value(key("c")) != nil {
		t.Errorf("the context has %v, %v", wrapped.Value(key("a")), wrapped.Value(key("b")))
	}
}

func TestDBWantsInitThread(t *testing.T) {
	db, _ := openDB(t)
	if _, err := db.Read(context.Background(), "t", "k", nil); err == nil {
		t.Error("a read outside any worker: no error")
	}
	db.CleanupThread(context.Background()) // without a worker it does nothing
}
