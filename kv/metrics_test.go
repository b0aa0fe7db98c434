package kv

import (
	"context"
	"math/bits"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/redykv/redykv/device"
)

// TestMetricsTable prints the table of a store that has done much, and of one that
// has done nothing and has neither read cache nor tiers.
func TestMetricsTable(t *testing.T) {
	busy := Metrics{
		Reads: 12_345_678_901, Upserts: 2_345_678, RMWs: 345_678, Deletes: 45_678, Inserts: 5678,
		ReadsMemory: 12_000_000_000, ReadsCache: 300_000_000, ReadsTier: [MaxTiers]uint64{40_000_000, 5_678_901},
		DeviceReads: 46_000_000, Sessions: 9, NamedSessions: 2,
		Begin: 1 << 30, Head: 5 << 30, Flushed: 5<<30 + 4096, ReadOnly: 6 << 30, Tail: 7<<30 + 512,
		FlushRetries: 3, FlushWaiting: true, Flushes: 250, Evictions: 240, FlushedBytes: 8 << 30, EvictedBytes: 7 << 30,
		MemoryBytes: 2 << 30, MemoryBudget: 3 << 30, IndexBytes: 300 << 20,
		CacheEntries: 1_000_000, CacheBytes: 900 << 20, CacheBudget: 1 << 30, CacheHits: 310_000_000, CacheAdded: 2_000_000, CacheEvicted: 1_000_000,
		IndexBuckets: 1 << 22, IndexOverflow: 12_345, IndexGrowths: 3, IndexLoad: 0.7129,
		Commits: 50, CommitErrors: 1, Checkpoints: 7, CheckpointErrors: 2, CheckpointBytes: 5 << 30, CheckpointsKept: 3, CheckpointsPinned: 96 << 20,
		LastCheckpoint:         time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC),
		LastCheckpointDuration: 2345 * time.Millisecond, LastCheckpointBytes: 700 << 20,
		Compactions: 4, CompactedRecords: 1_000_000, CopiedRecords: 123_456, CompactedBytes: 64 << 20, CopiedBytes: 7 << 20, ReclaimedBytes: 64 << 20,
		Barriers: 100, BarrierLast: 12345 * time.Nanosecond, BarrierMax: 1234567 * time.Nanosecond, BarrierSum: 5 * time.Second,
		BackgroundErrors: 1,
		Tiers: []device.TierMetrics{
			{Name: "redy", Reason: device.ErrFault, Begin: 4 << 30, Hits: 40_000_000, BytesRead: 1 << 30, BytesWritten: 8 << 30,
				FallThroughs: 5_678_901, ReadErrors: 3, WriteErrors: 2, Failures: 5, Restarts: 1,
				Backlog: 5 << 20, ReadMean: 3_210 * time.Nanosecond, ReadP99: 12 * time.Microsecond, WriteMean: 3 * time.Millisecond, WriteP99: time.Second,
				Missing: 3 << 20, Refills: 17, Refilled: 1 << 20},
			{Name: "ssd", Healthy: true, Begin: 1 << 30, Hits: 5_678_901, BytesRead: 100 << 20, BytesWritten: 8 << 30},
		},
	}
	datadriven.RunTest(t, "testdata/metrics", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "busy":
			return busy.String()
		case "idle":
			return Metrics{MemoryBudget: 1 << 20}.String()
		}
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	})
}

// TestMetricsOfTheStore compares with what was done to it.
func TestMetricsOfTheStore(t *testing.T) {
	opts := small(device.NewTiered(device.NewMemory(), device.NewMemory()), 8, 8)
	opts.Records = 7 * 1000
	st := open(t, opts)
	named, err := st.NewNamedSession("n")
	if err != nil {
		t.Fatal(err)
	}
	const keys = 5000
	for n := range uint64(keys) {
		if err := named.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	m := st.Metrics()
	buckets := int64(1) << bits.Len(uint(opts.Records/perBucket-1))
	if want := max(buckets, 1<<minTableBits); m.IndexBuckets != want || m.IndexGrowths != 0 {
		t.Errorf("%d buckets, want %d; doubled %d times", m.IndexBuckets, want, m.IndexGrowths)
	}
	// Few of these keys share bucket and tag; a sample is not all.
	if want := float64(keys) / float64(7*m.IndexBuckets); m.IndexLoad < want*0.8 || m.IndexLoad > want*1.2 {
		t.Errorf("load %g, about %g", m.IndexLoad, want)
	}
	if m.Sessions != 1 || m.NamedSessions != 1 {
		t.Errorf("%d sessions, %d of them named", m.Sessions, m.NamedSessions)
	}
	if m.Flushed != m.Tail || m.FlushedBytes != m.Tail-m.Begin || m.Flushes == 0 || m.EvictedBytes != m.Head-m.Begin || m.Evictions == 0 {
		t.Errorf("log from %d, head %d, flushed %d, tail %d; %d bytes flushed, %d evicted", m.Begin, m.Head, m.Flushed, m.Tail, m.FlushedBytes, m.EvictedBytes)
	}
	if m.Barriers == 0 || m.BarrierLast <= 0 || m.BarrierMax < m.BarrierLast || m.BarrierSum < m.BarrierMax {
		t.Errorf("%d barriers: last %v, longest %v, all %v", m.Barriers, m.BarrierLast, m.BarrierMax, m.BarrierSum)
	}
	if len(m.Tiers) != 2 || m.Tiers[1].BytesWritten < uint64(m.FlushedBytes) || m.BackgroundErrors != 0 {
		t.Errorf("tiers %+v, %d errors", m.Tiers, m.BackgroundErrors)
	}
	if err := st.GrowIndex(context.Background()); err != nil {
		t.Fatal(err)
	}
	grown := st.Metrics()
	if half := m.IndexLoad / 2; grown.IndexBuckets != 2*m.IndexBuckets || grown.IndexGrowths != 1 || grown.IndexLoad < half*0.8 || grown.IndexLoad > half*1.2 {
		t.Errorf("twice the size: %d buckets, doubled %d times, load %g after %g", grown.IndexBuckets, grown.IndexGrowths, grown.IndexLoad, m.IndexLoad)
	}
	closeAll(t, named, st)
	if closed := st.Metrics(); closed.Upserts != keys || closed.IndexLoad != 0 {
		t.Errorf("closed: %+v", closed)
	}
}

// TestMetricsWhileTheIndexGrows asks while tables come and go.
func TestMetricsWhileTheIndexGrows(t *testing.T) {
	opts := small(device.NewMemory(), 8, 8)
	opts.Memory, opts.indexBits = 1<<20, 2
	st := open(t, opts)
	for n := range uint64(2000) {
		if err := st.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 5 {
			if err := st.GrowIndex(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	for range 1000 {
		m := st.Metrics()
		if entries := m.IndexLoad * float64(7*m.IndexBuckets); m.IndexBuckets <= loadSample && (entries < 1500 || entries > 2500) {
			t.Errorf("about %g entries for 2000 keys", entries)
		}
	}
	wg.Wait()
	closeAll(t, st)
}

// BenchmarkMetrics asks a store with an index that does not fit into the cache.
func BenchmarkMetrics(b *testing.B) {
	st := open(b, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 64 << 20, Records: 4 << 20})
	for n := range uint64(1 << 20) {
		if err := st.Upsert(key8(n), key8(n)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		st.Metrics()
	}
	closeAll(b, st)
}
