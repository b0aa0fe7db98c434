package goycsb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// TestOtherDBs checks that the databases of other stores behave as DB: updates merge fields,
// and scans are in order and within the table.
func TestOtherDBs(t *testing.T) {
	for _, name := range append(peers.Names(), StoreMap) {
		t.Run(name, func(t *testing.T) {
			var db goycsb.DB = newMapDB(true)
			if name != StoreMap {
				store, err := peers.Open(name, peers.Options{Dir: t.TempDir(), Memory: 8 << 20})
				if err != nil {
					t.Fatal(err)
				}
				db = newPeerDB(store)
			}
			defer func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}()
			ctx := db.InitThread(t.Context(), 0, 1)
			defer db.CleanupThread(ctx)
			fields := func(s string) map[string][]byte {
				all := make(map[string][]byte)
				for pair := range strings.FieldsSeq(s) {
					name, value, _ := strings.Cut(pair, "=")
					all[name] = []byte(value)
				}
				return all
			}
			err := errors.Join(
				db.Insert(ctx, "t", "b", fields("x=1 y=2")), db.Insert(ctx, "t", "a", fields("x=3")),
				db.Insert(ctx, "u", "c", fields("x=4")), db.Insert(ctx, "t", "c", fields("x=5")),
				db.Update(ctx, "t", "b", fields("y=7 z=8")), db.Update(ctx, "t", "d", fields("x=6")), db.Delete(ctx, "t", "c"),
				db.Update(ctx, "t", "none", fields("")),
			)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := db.Read(ctx, "t", "b", nil); err != nil || !reflect.DeepEqual(got, fields("x=1 y=7 z=8")) {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := db.Read(ctx, "t", "b", []string{"z"}); err != nil || !reflect.DeepEqual(got, fields("z=8")) {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := db.Read(ctx, "t", "c", nil); !errors.Is(err, kv.ErrNotFound) {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := db.Read(ctx, "t", "none", nil); err != nil || len(got) > 0 {
				t.Errorf("a row without fields is %q, %v", got, err)
			}
			got, err := db.Scan(ctx, "t", "b", 2, []string{"x"})
			if want := []map[string][]byte{fields("x=1"), fields("x=6")}; err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := db.Read(context.Background(), "t", "b", nil); err == nil {
				t.Error("a context that did not pass through InitThread")
			}
		})
	}
}

// TestSuite checks that every workload runs on every store and has figures.
func TestSuite(t *testing.T) {
	testrun.SkipRaced(t, "go-ycsb has data races by design")
	spec := SuiteSpec{
		Workloads: Workloads(), Stores: SuiteStores(), Records: 300, Operations: 200, Fields: 10, FieldLength: 100, Threads: 2, Rounds: 2, Memory: 8 << 20, Dir: t.TempDir(),
	}
	rows, err := Suite(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(spec.Workloads)*len(spec.Stores) {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.Ops <= 0 || r.Least > r.Ops || r.Most < r.Ops || r.Rounds != 2 || r.Failed > 0 || r.P50 > r.P99 {
			t.Errorf("%+v", r)
		}
	}
	for what, spoil := range map[string]func(*SuiteSpec){
		"store":      func(s *SuiteSpec) { s.Stores = []string{"rocks"} },
		"twice":      func(s *SuiteSpec) { s.Stores = []string{"empty", "empty"} },
		"workload":   func(s *SuiteSpec) { s.Workloads = nil },
		"records":    func(s *SuiteSpec) { s.Records = 0 },
		"operations": func(s *SuiteSpec) { s.Operations = 1 },
		"fields":     func(s *SuiteSpec) { s.Fields = 0 },
		"length":     func(s *SuiteSpec) { s.FieldLength = 1 << 40 },
		"rounds":     func(s *SuiteSpec) { s.Rounds = 0 },
		"memory":     func(s *SuiteSpec) { s.Memory = 0 },
		"threads":    func(s *SuiteSpec) { s.Threads = 0 },
	} {
		bad := spec
		spoil(&bad)
		if _, err := Suite(t.Context(), bad, nil); !errors.Is(err, ErrProperties) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := totals([]byte(`[{"Operation":"READ"}]`)); err == nil {
		t.Error("no total")
	}
	if _, err := totals([]byte(`[{"Operation":"TOTAL","OPS":"many"}]`)); err == nil {
		t.Error("many is a number")
	}
}

// TestSuiteRatios checks that a ratio is the median of the rounds' ratios where the stores'
// median throughputs are of different rounds.
func TestSuiteRatios(t *testing.T) {
	rounds := func(ops ...float64) (all []SuiteRow) {
		for _, n := range ops {
			all = append(all, SuiteRow{Ops: n})
		}
		return all
	}
	got := summarize(rounds(10, 20, 40), rounds(30, 10, 20)) // 20 over 20 would be 1
	if want := (SuiteRow{Ops: 20, Rounds: 3, Least: 10, Most: 40, FirstIs: 0.5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestSuiteCountsAllFailures checks that operations which failed in any round are counted.
func TestSuiteCountsAllFailures(t *testing.T) {
	rounds := []SuiteRow{{Ops: 10, Failed: 1}, {Ops: 20}, {Ops: 30, Failed: 2}}
	if got := summarize(rounds, rounds).Failed; got != 3 {
		t.Errorf("%d failed, want 3", got)
	}
}

// TestSuiteOfFilesWithoutRoom checks that rows which are larger than the disk are refused.
func TestSuiteOfFilesWithoutRoom(t *testing.T) {
	spec := SuiteSpec{
		Workloads: Workloads(), Stores: []string{"empty", "bbolt"}, Records: ycsb.MaxRecords, Operations: 1, Fields: 10, FieldLength: 100, Threads: 1, Rounds: 1, Memory: 8 << 20, Dir: t.TempDir(),
	}
	if _, err := Suite(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "the files need") {
		t.Error(err)
	}
	if spec.Stores = []string{"empty", "map"}; spec.files() != 0 {
		t.Errorf("stores without files have %d bytes", spec.files())
	}
}

// TestMapDBIsShared checks that concurrent threads read whole rows.
func TestMapDBIsShared(t *testing.T) {
	db := newMapDB(true)
	var threads sync.WaitGroup
	for n := range 4 {
		threads.Go(func() {
			ctx := db.InitThread(t.Context(), n, 4)
			for i := range 500 {
				key, value := fmt.Sprint(i%10), bytes.Repeat([]byte{byte('a' + n)}, 100+i%2)
				err := db.Update(ctx, "t", key, map[string][]byte{"x": value, "y": value})
				if i%50 == n {
					err = errors.Join(err, db.Delete(ctx, "t", key))
				}
				rows, scanErr := db.Scan(ctx, "t", "", 10, nil)
				if row, readErr := db.Read(ctx, "t", key, nil); readErr == nil {
					rows = append(rows, row)
				} else if !errors.Is(readErr, kv.ErrNotFound) {
					err = errors.Join(err, readErr)
				}
				for _, row := range rows {
					if !bytes.Equal(row["x"], row["y"]) {
						t.Errorf("%q", row)
					}
				}
				if err = errors.Join(err, scanErr); err != nil {
					t.Error(err)
				}
			}
		})
	}
	threads.Wait()
}
