package kv

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/units"
)

// MaxTiers is the number of tiers of a device that Metrics distinguishes.
const MaxTiers = 4

// Metrics describes a store's activity since it was opened, and its current size, part by
// part. Counts of operations are sums over all sessions.
type Metrics struct {
	Operations  OperationMetrics
	ReadsFrom   ReadMetrics
	Sessions    SessionMetrics
	Log         LogMetrics
	Index       IndexMetrics
	ReadCache   ReadCacheMetrics // all 0 without a read cache
	Device      DeviceMetrics
	Commits     CommitMetrics
	Checkpoints CheckpointMetrics
	Compaction  CompactionMetrics
	Eviction    EvictionMetrics
	Barriers    BarrierMetrics
	Sampling    SamplingMetrics // all 0 while accesses are not sampled
	// BackgroundErrors counts errors without a waiting caller. They are reported to the Logger
	// and the EventListener.
	BackgroundErrors uint64
}

// OperationMetrics counts operations that began. Refused ones are not counted.
type OperationMetrics struct {
	Reads, Upserts, RMWs, Deletes, Inserts uint64
}

// ReadMetrics counts reads by where the record was found.
type ReadMetrics struct {
	Memory uint64 // the log's memory
	Cache  uint64 // the read cache
	// Tier counts reads whose last fetch was from that tier of the device. A device without
	// tiers is tier 0.
	Tier [MaxTiers]uint64
}

// SessionMetrics counts open sessions.
type SessionMetrics struct {
	Open  int // including the store's own
	Named int
}

// LogMetrics describes the hybrid log. Records below Head are on the device only. Records from
// ReadOnly on are updated in place. Records below Flushed have reached the device's commit
// point.
type LogMetrics struct {
	Begin, Head, ReadOnly, Flushed, Tail int64 // addresses
	// AddressEnd is the end of the address space. Addresses grow for ever: when Tail is there,
	// nothing can be written any more.
	AddressEnd int64
	// MemoryBytes is the part of the log in memory, at most MemoryBudget.
	MemoryBytes, MemoryBudget int64
	// Flushes counts writes of the log that reached the commit point, Evictions moves of Head.
	Flushes, Evictions         uint64
	FlushedBytes, EvictedBytes int64
	// FlushRetries counts writes that were begun again after a failure that may pass, such as a
	// lack of space or of descriptors.
	FlushRetries uint64
	FlushWaiting bool // the writer waits after such a failure
}

// IndexMetrics describes the hash index.
type IndexMetrics struct {
	Bytes    int64
	Buckets  int64   // of seven entries each
	Overflow int64   // overflow buckets in use
	Growths  uint64  // number of times the index has doubled
	Load     float64 // used entries per entry of the buckets, estimated from a sample
}

// ReadCacheMetrics describes the read cache. Its memory is not part of the log's.
type ReadCacheMetrics struct {
	Records       int64
	Bytes, Budget int64
	Hits          uint64 // records found in the cache instead of being fetched from the device
	// Added counts records added to the cache, Evicted records dropped from it, since its size
	// last changed.
	Added, Evicted uint64
}

// DeviceMetrics describes the store's device.
type DeviceMetrics struct {
	Reads       uint64 // records fetched, for all operations
	CacheBudget int64  // memory for caches in the device, part of Options.Memory
	// Tiers of the device, first tier first; nil if it is not a [device.Tiered].
	Tiers []device.TierMetrics
}

// CommitMetrics counts commits: those of Commit and Close, and those that other calls need.
type CommitMetrics struct {
	Made, Failed uint64
}

// CheckpointMetrics describes checkpoints of every kind.
type CheckpointMetrics struct {
	Made, Failed uint64
	Bytes        int64 // of all objects written
	// Kept is the number of checkpoints that can be recovered by name. PinnedBytes of the log
	// stay on the device only for them.
	Kept, PinnedBytes int64
	// The newest checkpoint since the store was opened; zero if there is none.
	Last         time.Time
	LastDuration time.Duration
	LastBytes    int64
}

// CompactionMetrics describes compactions.
type CompactionMetrics struct {
	Runs                       uint64
	ReadRecords, CopiedRecords uint64 // copied to the tail
	ReadBytes, CopiedBytes     int64
	ReclaimedBytes             int64 // by moving the log's begin
}

// SamplingMetrics describes the sampling of accesses: see [Store.SetSampling].
type SamplingMetrics struct {
	Accesses uint64  // that were passed to the sampler since it began
	Keys     int64   // that are followed
	Rate     float64 // share of all keys that are followed, at most
}

// EvictionMetrics describes evictions (Options.Eviction).
type EvictionMetrics struct {
	Portions  uint64 // parts of the log that were dropped
	Keys      uint64 // that were dropped with them
	Bytes     int64  // by which the log's begin moved
	Kept      uint64 // records that were copied to the tail instead
	KeptBytes int64
}

func (m *EvictionMetrics) add(i *EvictionMetrics) {
	m.Portions += i.Portions
	m.Keys += i.Keys
	m.Bytes += i.Bytes
	m.Kept += i.Kept
	m.KeptBytes += i.KeptBytes
}

// BarrierMetrics describes barriers, made for commits and checkpoints, and how long they
// stopped the operations of all sessions.
type BarrierMetrics struct {
	Count          uint64
	Last, Max, Sum time.Duration
}

// Metrics returns the store's metrics. It looks at all sessions and at some hundred buckets of
// the index: call it every second, not for every operation.
func (st *Store) Metrics() Metrics {
	st.mu.Lock()
	m := st.past
	for s := range st.sessions {
		s.counts.addTo(&m)
	}
	m.Sessions.Open, m.Sessions.Named = len(st.sessions), len(st.named)
	st.mu.Unlock()
	st.addLogTo(&m)
	if st.cache != nil {
		c := st.cache.Metrics()
		m.ReadCache.Records, m.ReadCache.Bytes, m.ReadCache.Budget = c.Entries, c.Bytes, c.Capacity
		m.ReadCache.Added, m.ReadCache.Evicted = c.Added, c.Evicted
	}
	st.addIndexTo(&m)
	if sampler := st.sampling.sampler.Load(); sampler != nil {
		m.Sampling = SamplingMetrics(sampler.Stats())
	}
	recorded := st.recorded()
	m.Checkpoints.Kept = int64(len(recorded.Checkpoints))
	m.Checkpoints.PinnedBytes = recorded.Pinned(recorded.Begin())
	m.Barriers = BarrierMetrics(st.epoch.Stalls())
	if tiered, ok := st.dev.(interface{ Metrics() []device.TierMetrics }); ok {
		m.Device.Tiers = tiered.Metrics()
	}
	return m
}

func (st *Store) addLogTo(m *Metrics) {
	l := st.log
	// In ascending order: markers that move meanwhile move up.
	m.Log.Begin, m.Log.Head, m.Log.Flushed, m.Log.ReadOnly, m.Log.Tail = l.Begin(), l.Head(), l.Committed(), l.ReadOnly(), l.Tail()
	m.Log.AddressEnd = l.AddressEnd()
	m.Log.MemoryBytes, m.Log.MemoryBudget = m.Log.Tail-m.Log.Head, l.Budget()
	m.Device.CacheBudget = st.opts.deviceCache
	c := l.Counts()
	m.Log.Flushes, m.Log.Evictions, m.Log.FlushedBytes, m.Log.EvictedBytes = c.Flushes, c.Evictions, c.FlushedBytes, c.EvictedBytes
	m.Log.FlushRetries, m.Log.FlushWaiting = c.Retries, c.Waiting
}

// count changes the counts that are not of sessions.
func (st *Store) count(change func(m *Metrics)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change(&st.past)
}

func (m *CheckpointMetrics) add(i *CheckpointEndInfo) {
	if i.Err != nil {
		m.Failed++
		return
	}
	m.Made++
	m.Bytes += i.Bytes
	m.Last, m.LastDuration, m.LastBytes = i.Time, i.Duration, i.Bytes
}

func (st *Store) addIndexTo(m *Metrics) {
	// The table is freed after growth, when no session is inside an older epoch, or when the
	// store is closed.
	handle := st.epoch.Register()
	defer handle.Unregister()
	handle.Enter()
	defer handle.Leave()
	st.mu.Lock() // after Enter: a barrier may wait for it
	defer st.mu.Unlock()
	t := st.index.Load()
	m.Index.Buckets, m.Index.Overflow, m.Index.Bytes = int64(t.Mask()+1), int64(t.Overflow()), t.Bytes()
	if next := t.Next(); next != nil {
		m.Index.Bytes += next.Bytes()
	}
	if st.closed {
		return
	}
	m.Index.Load = math.Round(t.LoadFactor()*1000) / 1000
}

// failed counts and reports an error for which no caller waits. The caller has logged it.
func (st *Store) failed(what string, err error) {
	st.count(func(m *Metrics) { m.BackgroundErrors++ })
	st.opts.Events.BackgroundError(BackgroundErrorInfo{what, err})
}

// String returns the metrics as a table: for each part of the store a row of names and a row
// of numbers.
func (m Metrics) String() string {
	var t metricsTable
	t.w.Init(&t.b, 0, 0, 2, ' ', tabwriter.AlignRight)
	t.operations(&m)
	t.log(&m)
	t.memory(&m)
	t.row("index", "buckets", m.Index.Buckets, "overflow", m.Index.Overflow, "load", fmt.Sprintf("%.1f%%", 100*m.Index.Load),
		"doubled", m.Index.Growths)
	t.checkpoints(&m)
	t.row("compaction", "runs", m.Compaction.Runs, "read", m.Compaction.ReadRecords, "bytes", units.Size(m.Compaction.ReadBytes),
		"copied", m.Compaction.CopiedRecords, "bytes", units.Size(m.Compaction.CopiedBytes), "reclaimed", units.Size(m.Compaction.ReclaimedBytes))
	t.row("eviction", "portions", m.Eviction.Portions, "bytes", units.Size(m.Eviction.Bytes), "keys", m.Eviction.Keys, "kept", m.Eviction.Kept, "bytes", units.Size(m.Eviction.KeptBytes))
	t.row("barriers", "count", m.Barriers.Count, "last", short(m.Barriers.Last), "longest", short(m.Barriers.Max),
		"all", short(m.Barriers.Sum), "errors", m.BackgroundErrors)
	if m.Sampling != (SamplingMetrics{}) {
		t.row("sampling", "accesses", m.Sampling.Accesses, "keys", m.Sampling.Keys, "rate", m.Sampling.Rate)
	}
	for i := range m.Device.Tiers {
		t.tier(&m, i)
	}
	if err := t.w.Flush(); err != nil { // cannot happen: a Builder does not fail
		return err.Error()
	}
	// The writer also pads before the titles.
	return strings.ReplaceAll("\n"+t.b.String(), "\n  ", "\n")[1:]
}

type metricsTable struct {
	b strings.Builder
	w tabwriter.Writer
}

// row prints the names and numbers of a part. pairs alternates between both.
func (t *metricsTable) row(title string, pairs ...any) {
	fmt.Fprintf(&t.w, "%-12s\t", title)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&t.w, "%v\t", pairs[i])
	}
	fmt.Fprintf(&t.w, "\n%-12s\t", "")
	for i := 1; i < len(pairs); i += 2 {
		fmt.Fprintf(&t.w, "%v\t", pairs[i])
	}
	fmt.Fprintln(&t.w)
}

func (t *metricsTable) operations(m *Metrics) {
	t.row("operations", "reads", m.Operations.Reads, "upserts", m.Operations.Upserts, "rmws", m.Operations.RMWs, "deletes", m.Operations.Deletes,
		"inserts", m.Operations.Inserts, "sessions", m.Sessions.Open, "named", m.Sessions.Named)
	from := []any{"memory", m.ReadsFrom.Memory}
	if m.ReadCache.Budget > 0 || m.ReadsFrom.Cache > 0 {
		from = append(from, "cache", m.ReadsFrom.Cache)
	}
	for tier, n := range m.ReadsFrom.Tier {
		if n > 0 || tier == 0 {
			from = append(from, fmt.Sprintf("tier %d", tier), n)
		}
	}
	t.row("reads from", append(from, "fetched", m.Device.Reads)...)
}

func (t *metricsTable) log(m *Metrics) {
	t.row("log", "begin", m.Log.Begin, "head", m.Log.Head, "flushed", m.Log.Flushed, "read-only", m.Log.ReadOnly, "tail", m.Log.Tail,
		"address end", m.Log.AddressEnd, "size", units.Size(m.Log.Tail-m.Log.Begin), "mutable", units.Size(m.Log.Tail-m.Log.ReadOnly))
	state := "writing"
	if m.Log.FlushWaiting {
		state = "waiting"
	}
	t.row("flusher", "flushes", m.Log.Flushes, "bytes", units.Size(m.Log.FlushedBytes),
		"evictions", m.Log.Evictions, "bytes", units.Size(m.Log.EvictedBytes), "retries", m.Log.FlushRetries, "state", state)
}

func (t *metricsTable) memory(m *Metrics) {
	parts := []any{"budget", units.Size(m.Log.MemoryBudget + m.ReadCache.Budget + m.Device.CacheBudget), "log", units.Size(m.Log.MemoryBytes),
		"of", units.Size(m.Log.MemoryBudget), "cache", units.Size(m.ReadCache.Bytes), "of", units.Size(m.ReadCache.Budget)}
	if m.Device.CacheBudget > 0 {
		parts = append(parts, "device's caches", units.Size(m.Device.CacheBudget))
	}
	t.row("memory", append(parts, "index beside", units.Size(m.Index.Bytes))...)
	if m.ReadCache.Budget > 0 || m.ReadCache.Records > 0 || m.ReadCache.Hits > 0 || m.ReadCache.Added > 0 || m.ReadCache.Evicted > 0 {
		t.row("read cache", "records", m.ReadCache.Records, "hits", m.ReadCache.Hits, "added", m.ReadCache.Added, "evicted", m.ReadCache.Evicted)
	}
}

func (t *metricsTable) checkpoints(m *Metrics) {
	t.row("commits", "made", m.Commits.Made, "failed", m.Commits.Failed)
	t.row("checkpoints", "made", m.Checkpoints.Made, "failed", m.Checkpoints.Failed, "bytes", units.Size(m.Checkpoints.Bytes),
		"kept", m.Checkpoints.Kept, "pinned", units.Size(m.Checkpoints.PinnedBytes))
	if !m.Checkpoints.Last.IsZero() || m.Checkpoints.LastDuration != 0 || m.Checkpoints.LastBytes != 0 {
		t.row("", "last", m.Checkpoints.Last.UTC().Format(time.TimeOnly), "on", m.Checkpoints.Last.UTC().Format(time.DateOnly),
			"took", short(m.Checkpoints.LastDuration), "bytes", units.Size(m.Checkpoints.LastBytes))
	}
}

func (t *metricsTable) tier(m *Metrics, i int) {
	tier := &m.Device.Tiers[i]
	state := "healthy"
	if !tier.Healthy {
		state = "out"
	}
	t.row(fmt.Sprintf("tier %d", i), tier.Name, state, "begin", tier.Begin, "hits", tier.Hits,
		"read", units.Size(tier.BytesRead), "written", units.Size(tier.BytesWritten), "passed on", tier.FallThroughs)
	t.row("", "read errors", tier.ReadErrors, "write errors", tier.WriteErrors, "failures", tier.Failures, "restarts", tier.Restarts,
		"backlog", units.Size(tier.Backlog))
	t.row("", "read time", short(tier.ReadMean), "p99", short(tier.ReadP99), "write time", short(tier.WriteMean), "p99", short(tier.WriteP99))
	if tier.Missing > 0 || tier.Refills > 0 || tier.Refilled > 0 {
		t.row("", "missing", units.Size(tier.Missing), "refills", tier.Refills, "bytes", units.Size(tier.Refilled))
	}
	if tier.Reason != nil {
		fmt.Fprintf(&t.w, "%-16s%v\n", "", tier.Reason)
	}
}

// short rounds d to about three digits.
func short(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Minute)
}
