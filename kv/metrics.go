package kv

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/device"
)

// MaxTiers is how many tiers of a device Metrics tells apart.
const MaxTiers = 4

// Metrics is what a store has done since it was opened and what it uses. The
// counts of operations are sums over all sessions.
type Metrics struct {
	// Operations, those under way included, and without those refused.
	Reads, Upserts, RMWs, Deletes, Inserts uint64
	// Where reads found their answer: in the log's memory, in the read cache, or
	// with the last fetch from that tier of the device (0 where the device is not
	// tiered).
	ReadsMemory uint64
	ReadsCache  uint64
	ReadsTier   [MaxTiers]uint64
	// Records fetched from the device, for all operations; and those that the
	// read cache saved them from fetching.
	DeviceReads uint64
	CacheHits   uint64
	// Sessions that are open, the store's own included, and those with a name.
	Sessions, NamedSessions int

	// The log: bytes below Head are on the device only, those from ReadOnly on
	// are updated in place, those below Flushed are at the device's commit point.
	Begin, Head, ReadOnly, Flushed, Tail int64
	// Writes of the log that are at the commit point, moves of Head, and their
	// bytes.
	Flushes, Evictions         uint64
	FlushedBytes, EvictedBytes int64
	// FlushRetries is how often writing the log began again after a failure that may
	// pass, such as a want of space or of descriptors; FlushWaiting says that one has not
	// passed yet.
	FlushRetries uint64
	FlushWaiting bool

	// MemoryBytes of log are resident, of at most MemoryBudget; the index takes
	// IndexBytes beside them, and the read cache CacheBudget.
	MemoryBytes, MemoryBudget, IndexBytes int64

	// The read cache, all 0 without one: CacheEntries records of CacheBytes, in
	// CacheBudget bytes of memory beside the log's; admitted to it and pushed out
	// again since its size last changed.
	CacheEntries, CacheBytes, CacheBudget int64
	CacheAdded, CacheEvicted              uint64

	// DeviceCacheBudget is what caches in the device may take, of Options.Memory as
	// well.
	DeviceCacheBudget int64

	// The index: buckets of seven entries, those in use behind full ones, how
	// often it has doubled, and the share of the buckets' entries that is in use,
	// above 1 where there are more: an estimate from a sample of the buckets.
	IndexBuckets, IndexOverflow int64
	IndexGrowths                uint64
	IndexLoad                   float64

	// Commits, by Commit, Close and whoever needs one, and Checkpoints of every kind;
	// those that failed; the bytes of the checkpoints' objects. Of the newest
	// checkpoint that was made since the store was opened, when it was, how long it
	// took and how many bytes of its own it has.
	// CheckpointsKept can be recovered by name; for them CheckpointsPinned bytes of the log
	// stay on the device that the last commit does not need.
	Commits, CommitErrors, Checkpoints, CheckpointErrors uint64
	CheckpointBytes                                      int64
	LastCheckpoint                                       time.Time // zero: none
	LastCheckpointDuration                               time.Duration
	LastCheckpointBytes                                  int64
	CheckpointsKept, CheckpointsPinned                   int64

	// Compactions, the records and bytes of log that they went through, those
	// that they copied to the tail, and by how much the log's begin moved.
	Compactions                     uint64
	CompactedRecords, CopiedRecords uint64
	CompactedBytes, CopiedBytes     int64
	ReclaimedBytes                  int64

	// Barriers between the operations of all sessions, for commits and
	// checkpoints, and how long they kept operations waiting: the last one, the
	// longest, all together.
	Barriers                            uint64
	BarrierLast, BarrierMax, BarrierSum time.Duration
	// BackgroundErrors are those of which the Logger was told, and the
	// EventListener.
	BackgroundErrors uint64

	// Tiers of the device, the first one first; nil where it is not a
	// [device.Tiered].
	Tiers []device.TierMetrics
}

// Metrics says what the store has done and what it uses. It looks at all
// sessions and at some hundred buckets of the index: to be called every second,
// not for every operation.
func (st *Store) Metrics() Metrics {
	st.mu.Lock()
	m := st.past
	for s := range st.sessions {
		s.counts.addTo(&m)
	}
	m.Sessions, m.NamedSessions = len(st.sessions), len(st.named)
	st.mu.Unlock()
	st.addLogTo(&m)
	st.addCacheTo(&m)
	st.addIndexTo(&m)
	st.addCheckpointsTo(&m)
	st.compaction.addTo(&m)
	stalls := st.epoch.Stalls()
	m.Barriers, m.BarrierLast, m.BarrierMax, m.BarrierSum = stalls.Count, stalls.Last, stalls.Max, stalls.Total
	m.BackgroundErrors = st.backgroundErrors.Load()
	if tiered, ok := st.dev.(interface{ Metrics() []device.TierMetrics }); ok {
		m.Tiers = tiered.Metrics()
	}
	return m
}

func (st *Store) addLogTo(m *Metrics) {
	l := st.log
	// From the lowest on: what moves meanwhile moves up.
	m.Begin, m.Head, m.Flushed, m.ReadOnly, m.Tail = l.Begin(), l.Head(), l.Committed(), l.ReadOnly(), l.Tail()
	m.MemoryBytes, m.MemoryBudget = m.Tail-m.Head, l.Budget()
	m.DeviceCacheBudget = st.opts.deviceCache
	c := l.Counts()
	m.Flushes, m.Evictions, m.FlushedBytes, m.EvictedBytes = c.Flushes, c.Evictions, c.FlushedBytes, c.EvictedBytes
	m.FlushRetries, m.FlushWaiting = c.Retries, c.Waiting
}

func (st *Store) addCacheTo(m *Metrics) {
	if st.cache == nil {
		return
	}
	c := st.cache.Metrics()
	m.CacheEntries, m.CacheBytes, m.CacheBudget = c.Entries, c.Bytes, c.Capacity
	m.CacheAdded, m.CacheEvicted = c.Added, c.Evicted
}

// checkpointCounts are over all checkpoints since the store was opened.
type checkpointCounts struct {
	made, failed        atomic.Uint64
	bytes, kept, pinned atomic.Int64
	last                atomic.Pointer[CheckpointEndInfo]
}

func (c *checkpointCounts) add(i *CheckpointEndInfo) {
	if i.Err != nil {
		c.failed.Add(1)
		return
	}
	c.made.Add(1)
	c.bytes.Add(i.Bytes)
	c.last.Store(i)
}

func (st *Store) addCheckpointsTo(m *Metrics) {
	m.Commits, m.CommitErrors = st.commits.Load(), st.commitErrors.Load()
	c := &st.checkpoints
	m.Checkpoints, m.CheckpointErrors, m.CheckpointBytes = c.made.Load(), c.failed.Load(), c.bytes.Load()
	if last := c.last.Load(); last != nil {
		m.LastCheckpoint, m.LastCheckpointDuration, m.LastCheckpointBytes = last.Time, last.Duration, last.Bytes
	}
	m.CheckpointsKept, m.CheckpointsPinned = c.kept.Load(), c.pinned.Load()
}

// loadSample is how many buckets are looked at for the index' load.
const loadSample = 512

func (st *Store) addIndexTo(m *Metrics) {
	m.IndexBytes, m.IndexGrowths = st.indexBytes(), st.growths.Load()
	// The table is freed when it has grown and nobody is inside an epoch from
	// before, or when the store is closed.
	slot := st.epoch.Register()
	defer slot.Unregister()
	slot.Enter()
	defer slot.Leave()
	st.mu.Lock() // after Enter: a barrier waits for it
	defer st.mu.Unlock()
	t := st.index.Load()
	m.IndexBuckets, m.IndexOverflow = int64(t.mask+1), int64(t.overflow.Load())
	if st.closed {
		return
	}
	n := min(t.mask+1, loadSample)
	entries := 0
	for i := range n {
		entries += t.entriesAt(i * ((t.mask + 1) / n))
	}
	m.IndexLoad = float64(entries) / float64(n*bucketEntries)
	m.IndexLoad = math.Round(m.IndexLoad*1000) / 1000
}

// entriesAt counts the entries of a bucket and of those behind it. Where they were
// moved to a table of twice the size, they are found there.
func (t *table) entriesAt(b uint64) (n int) {
	if next := t.next.Load(); next != nil && slotIn(t.bucket(b), 0).load() == entryMoved {
		return next.entriesAt(b) + next.entriesAt(b+t.mask+1)
	}
	for at := t.bucket(b); ; {
		for i := range bucketEntries {
			if e := slotIn(at, i).load(); e&entryUsed != 0 {
				n++
			}
		}
		link := slotIn(at, bucketEntries).load()
		if link == 0 {
			return n
		}
		at = t.bucket(uint64(link))
	}
}

// failed counts and tells of what went wrong where no caller waits for it. The
// logger was told.
func (st *Store) failed(what string, err error) {
	st.backgroundErrors.Add(1)
	st.opts.Events.BackgroundError(BackgroundErrorInfo{what, err})
}
