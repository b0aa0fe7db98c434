package kv

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redykv/redykv/internal/units"
)

// String prints the metrics as a table: for each part of the store a row of names
// and a row of numbers.
func (m Metrics) String() string {
	var t metricsTable
	t.w.Init(&t.b, 0, 0, 2, ' ', tabwriter.AlignRight)
	t.operations(&m)
	t.log(&m)
	t.memory(&m)
	t.row("index", "buckets", m.IndexBuckets, "overflow", m.IndexOverflow, "load", percent(m.IndexLoad),
		"doubled", m.IndexGrowths)
	t.checkpoints(&m)
	t.row("compaction", "runs", m.Compactions, "read", m.CompactedRecords, "bytes", units.Size(m.CompactedBytes),
		"copied", m.CopiedRecords, "bytes", units.Size(m.CopiedBytes), "reclaimed", units.Size(m.ReclaimedBytes))
	t.row("barriers", "count", m.Barriers, "last", short(m.BarrierLast), "longest", short(m.BarrierMax),
		"all", short(m.BarrierSum), "errors", m.BackgroundErrors)
	for i := range m.Tiers {
		t.tier(&m, i)
	}
	if err := t.w.Flush(); err != nil { // a Builder takes everything
		return err.Error()
	}
	// The writer puts its padding before the titles, too.
	return strings.ReplaceAll("\n"+t.b.String(), "\n  ", "\n")[1:]
}

// metricsTable is the table that is being printed.
type metricsTable struct {
	b strings.Builder
	w tabwriter.Writer
}

// row prints a part's names and numbers, which alternate.
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
	t.row("operations", "reads", m.Reads, "upserts", m.Upserts, "rmws", m.RMWs, "deletes", m.Deletes,
		"inserts", m.Inserts, "sessions", m.Sessions, "named", m.NamedSessions)
	from := []any{"memory", m.ReadsMemory}
	if m.CacheBudget > 0 || m.ReadsCache > 0 {
		from = append(from, "cache", m.ReadsCache)
	}
	for tier, n := range m.ReadsTier {
		if n > 0 || tier == 0 {
			from = append(from, fmt.Sprintf("tier %d", tier), n)
		}
	}
	t.row("reads from", append(from, "fetched", m.DeviceReads)...)
}

func (t *metricsTable) log(m *Metrics) {
	t.row("log", "begin", m.Begin, "head", m.Head, "flushed", m.Flushed, "read-only", m.ReadOnly, "tail", m.Tail,
		"size", units.Size(m.Tail-m.Begin), "mutable", units.Size(m.Tail-m.ReadOnly))
	state := "writing"
	if m.FlushWaiting {
		state = "waiting"
	}
	t.row("flusher", "flushes", m.Flushes, "bytes", units.Size(m.FlushedBytes),
		"evictions", m.Evictions, "bytes", units.Size(m.EvictedBytes), "retries", m.FlushRetries, "state", state)
}

func (t *metricsTable) memory(m *Metrics) {
	parts := []any{"budget", units.Size(m.MemoryBudget + m.CacheBudget + m.DeviceCacheBudget), "log", units.Size(m.MemoryBytes),
		"of", units.Size(m.MemoryBudget), "cache", units.Size(m.CacheBytes), "of", units.Size(m.CacheBudget)}
	if m.DeviceCacheBudget > 0 {
		parts = append(parts, "device's caches", units.Size(m.DeviceCacheBudget))
	}
	t.row("memory", append(parts, "index beside", units.Size(m.IndexBytes))...)
	if m.CacheBudget > 0 || m.CacheEntries > 0 || m.CacheHits > 0 || m.CacheAdded > 0 || m.CacheEvicted > 0 {
		t.row("read cache", "records", m.CacheEntries, "hits", m.CacheHits, "added", m.CacheAdded, "evicted", m.CacheEvicted)
	}
}

func (t *metricsTable) checkpoints(m *Metrics) {
	t.row("commits", "made", m.Commits, "failed", m.CommitErrors)
	t.row("checkpoints", "made", m.Checkpoints, "failed", m.CheckpointErrors, "bytes", units.Size(m.CheckpointBytes),
		"kept", m.CheckpointsKept, "pinned", units.Size(m.CheckpointsPinned))
	if !m.LastCheckpoint.IsZero() || m.LastCheckpointDuration != 0 || m.LastCheckpointBytes != 0 {
		t.row("", "last", m.LastCheckpoint.UTC().Format(time.TimeOnly), "on", m.LastCheckpoint.UTC().Format(time.DateOnly),
			"took", short(m.LastCheckpointDuration), "bytes", units.Size(m.LastCheckpointBytes))
	}
}

func (t *metricsTable) tier(m *Metrics, i int) {
	tier := &m.Tiers[i]
	state := "healthy"
	if !tier.Healthy {
		state = "out"
	}
	t.row(fmt.Sprintf("tier %d", i), tier.Name, state, "begin", tier.Begin, "hits", tier.Hits,
		"read", units.Size(tier.BytesRead), "written", units.Size(tier.BytesWritten), "passed on", tier.FallThroughs)
	t.row("", "read errors", tier.ReadErrors, "write errors", tier.WriteErrors, "failures", tier.Failures, "restarts", tier.Restarts,
		"backlog", units.Size(tier.Backlog))
	t.row("", "read time", short(tier.ReadMean), "p99", short(tier.ReadP99), "write time", short(tier.WriteMean), "p99", short(tier.WriteP99))
	if tier.Missing > 0 || tier.Refills > 0 {
		t.row("", "missing", units.Size(tier.Missing), "refills", tier.Refills, "bytes", units.Size(tier.Refilled))
	}
	if tier.Reason != nil {
		fmt.Fprintf(&t.w, "%-16s%v\n", "", tier.Reason)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// short is a duration with three digits or so.
func short(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Minute)
}
