package kv

import (
	"context"
	"math/bits"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// TestMetricsTable prints the table of a busy store, and of an unused one without read cache
// and tiers.
func TestMetricsTable(t *testing.T) {
	busy := Metrics{
		Operations: OperationMetrics{Reads: 12_345_678_901, Upserts: 2_345_678, RMWs: 345_678, Deletes: 45_678, Inserts: 5678},
		ReadsFrom:  ReadMetrics{Memory: 12_000_000_000, Cache: 300_000_000, Tier: [MaxTiers]uint64{40_000_000, 5_678_901}},
		Sessions:   SessionMetrics{Open: 9, Named: 2},
		Log: LogMetrics{
			Begin: 1 << 30, Head: 5 << 30, Flushed: 5<<30 + 4096, ReadOnly: 6 << 30, Tail: 7<<30 + 512, AddressEnd: 1 << 44,
			MemoryBytes: 2 << 30, MemoryBudget: 3 << 30,
			Flushes: 250, Evictions: 240, FlushedBytes: 8 << 30, EvictedBytes: 7 << 30, FlushRetries: 3, FlushWaiting: true,
		},
		Index: IndexMetrics{Bytes: 300 << 20, Buckets: 1 << 22, Overflow: 12_345, Growths: 3, Load: 0.7129},
		ReadCache: ReadCacheMetrics{
			Records: 1_000_000, Bytes: 900 << 20, Budget: 1 << 30, Hits: 310_000_000, Added: 2_000_000, Evicted: 1_000_000,
		},
		Commits: CommitMetrics{Made: 50, Failed: 1},
		Checkpoints: CheckpointMetrics{
			Made: 7, Failed: 2, Bytes: 5 << 30, Kept: 3, PinnedBytes: 96 << 20,
			Last: time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC), LastDuration: 2345 * time.Millisecond, LastBytes: 700 << 20,
		},
		Compaction: CompactionMetrics{
			Runs: 4, ReadRecords: 1_000_000, CopiedRecords: 123_456, ReadBytes: 64 << 20, CopiedBytes: 7 << 20, ReclaimedBytes: 64 << 20,
		},
		Eviction:         EvictionMetrics{Portions: 9, Keys: 54_321, Bytes: 9 << 20, Kept: 1_234, KeptBytes: 3 << 20},
		Barriers:         BarrierMetrics{Count: 100, Last: 12345 * time.Nanosecond, Max: 1234567 * time.Nanosecond, Sum: 5 * time.Second},
		BackgroundErrors: 1,
		Device: DeviceMetrics{Reads: 46_000_000, Tiers: []device.TierMetrics{
			{Name: "redy", Reason: device.ErrFault, Begin: 4 << 30, Hits: 40_000_000, BytesRead: 1 << 30, BytesWritten: 8 << 30,
				FallThroughs: 5_678_901, ReadErrors: 3, WriteErrors: 2, Failures: 5, Restarts: 1,
				Backlog: 5 << 20, ReadMean: 3_210 * time.Nanosecond, ReadP99: 12 * time.Microsecond, WriteMean: 3 * time.Millisecond, WriteP99: time.Second,
				Missing: 3 << 20, Refills: 17, Refilled: 1 << 20},
			{Name: "ssd", Healthy: true, Begin: 1 << 30, Hits: 5_678_901, BytesRead: 100 << 20, BytesWritten: 8 << 30},
		}},
	}
	datadriven.RunTest(t, "testdata/metrics", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "busy":
			return busy.String()
		case "idle":
			return Metrics{Log: LogMetrics{MemoryBudget: 1 << 20}}.String()
		}
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	})
}

// TestMetricsOfTheStore compares the metrics with the operations that were executed.
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
	buckets := int64(1) << bits.Len(uint(opts.Records/index.PerBucket-1))
	if want := max(buckets, 1<<index.MinBits); m.Index.Buckets != want || m.Index.Growths != 0 {
		t.Errorf("%d buckets, want %d; doubled %d times", m.Index.Buckets, want, m.Index.Growths)
	}
	// Few of these keys share bucket and tag. The load is estimated from a sample.
	if want := float64(keys) / float64(7*m.Index.Buckets); m.Index.Load < want*0.8 || m.Index.Load > want*1.2 {
		t.Errorf("load %g, about %g", m.Index.Load, want)
	}
	if m.Sessions.Open != 1 || m.Sessions.Named != 1 {
		t.Errorf("%d sessions, %d of them named", m.Sessions.Open, m.Sessions.Named)
	}
	if m.Log.Flushed != m.Log.Tail || m.Log.FlushedBytes != m.Log.Tail-m.Log.Begin || m.Log.Flushes == 0 || m.Log.EvictedBytes != m.Log.Head-m.Log.Begin || m.Log.Evictions == 0 {
		t.Errorf("log from %d, head %d, flushed %d, tail %d; %d bytes flushed, %d evicted", m.Log.Begin, m.Log.Head, m.Log.Flushed, m.Log.Tail, m.Log.FlushedBytes, m.Log.EvictedBytes)
	}
	if want := min(hlog.MaxAddress, int64(st.log.PageSize())<<32); m.Log.AddressEnd != want {
		t.Errorf("addresses end at %d, want %d", m.Log.AddressEnd, want)
	}
	if m.Barriers.Count == 0 || m.Barriers.Last <= 0 || m.Barriers.Max < m.Barriers.Last || m.Barriers.Sum < m.Barriers.Max {
		t.Errorf("%d barriers: last %v, longest %v, all %v", m.Barriers.Count, m.Barriers.Last, m.Barriers.Max, m.Barriers.Sum)
	}
	if len(m.Device.Tiers) != 2 || m.Device.Tiers[1].BytesWritten < uint64(m.Log.FlushedBytes) || m.BackgroundErrors != 0 {
		t.Errorf("tiers %+v, %d errors", m.Device.Tiers, m.BackgroundErrors)
	}
	if err := st.GrowIndex(context.Background()); err != nil {
		t.Fatal(err)
	}
	grown := st.Metrics()
	if half := m.Index.Load / 2; grown.Index.Buckets != 2*m.Index.Buckets || grown.Index.Growths != 1 || grown.Index.Load < half*0.8 || grown.Index.Load > half*1.2 {
		t.Errorf("twice the size: %d buckets, doubled %d times, load %g after %g", grown.Index.Buckets, grown.Index.Growths, grown.Index.Load, m.Index.Load)
	}
	closeAll(t, named, st)
	if closed := st.Metrics(); closed.Operations.Upserts != keys || closed.Index.Load != 0 {
		t.Errorf("closed: %+v", closed)
	}
}

// TestMetricsWhileTheIndexGrows calls Metrics while tables are made and freed.
func TestMetricsWhileTheIndexGrows(t *testing.T) {
	opts := small(device.NewMemory(), 8, 8)
	opts.Memory, opts.indexBits = 1<<20, 2
	st := open(t, opts)
	for n := range uint64(2000) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
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
		if entries := m.Index.Load * float64(7*m.Index.Buckets); m.Index.Buckets <= 512 && (entries < 1500 || entries > 2500) {
			t.Errorf("about %g entries for 2000 keys", entries)
		}
	}
	wg.Wait()
	closeAll(t, st)
}

// BenchmarkMetrics measures Metrics of a store whose index does not fit into the processor's
// cache.
func BenchmarkMetrics(b *testing.B) {
	st := open(b, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 64 << 20, Records: 4 << 20})
	for n := range uint64(1 << 20) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		st.Metrics()
	}
	closeAll(b, st)
}
