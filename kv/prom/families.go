package prom

import (
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/metrics/promtable"
	"github.com/redykv/redykv/kv"
)

// namespace is the prefix of all names.
const namespace = "redykv_"

var families = []promtable.Family[kv.Metrics]{
	promtable.Counter("operations_total", "Operations that were begun, by kind.", promtable.By("kind",
		promtable.Of("read", func(m *kv.Metrics) uint64 { return m.Operations.Reads }),
		promtable.Of("upsert", func(m *kv.Metrics) uint64 { return m.Operations.Upserts }),
		promtable.Of("rmw", func(m *kv.Metrics) uint64 { return m.Operations.RMWs }),
		promtable.Of("delete", func(m *kv.Metrics) uint64 { return m.Operations.Deletes }),
		promtable.Of("insert", func(m *kv.Metrics) uint64 { return m.Operations.Inserts }),
	)),
	promtable.Counter("reads_answered_total", "Reads, by what answered them.", promtable.By("from",
		promtable.Of("memory", func(m *kv.Metrics) uint64 { return m.ReadsFrom.Memory }),
		promtable.Of("cache", func(m *kv.Metrics) uint64 { return m.ReadsFrom.Cache }),
		promtable.Of("tier0", func(m *kv.Metrics) uint64 { return m.ReadsFrom.Tier[0] }),
		promtable.Of("tier1", func(m *kv.Metrics) uint64 { return m.ReadsFrom.Tier[1] }),
		promtable.Of("tier2", func(m *kv.Metrics) uint64 { return m.ReadsFrom.Tier[2] }),
		promtable.Of("tier3", func(m *kv.Metrics) uint64 { return m.ReadsFrom.Tier[3] }),
	)),
	promtable.Counter("device_reads_total", "Records fetched from the device, for all operations.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Device.Reads })),
	promtable.Gauge("sessions", "Sessions that are open.",
		promtable.Number(func(m *kv.Metrics) int { return m.Sessions.Open })),
	promtable.Gauge("named_sessions", "Sessions that are open and have a name.",
		promtable.Number(func(m *kv.Metrics) int { return m.Sessions.Named })),

	promtable.Gauge("log_address_bytes", "Where the log's markers are in its address space, and where that ends.", promtable.By("marker",
		promtable.Of("begin", func(m *kv.Metrics) int64 { return m.Log.Begin }),
		promtable.Of("head", func(m *kv.Metrics) int64 { return m.Log.Head }),
		promtable.Of("flushed", func(m *kv.Metrics) int64 { return m.Log.Flushed }),
		promtable.Of("read_only", func(m *kv.Metrics) int64 { return m.Log.ReadOnly }),
		promtable.Of("tail", func(m *kv.Metrics) int64 { return m.Log.Tail }),
		promtable.Of("end", func(m *kv.Metrics) int64 { return m.Log.AddressEnd }),
	)),
	promtable.Counter("log_flushes_total", "Writes of the log that reached the device's commit point.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Log.Flushes })),
	promtable.Counter("log_flushed_bytes_total", "Bytes of log that reached the device's commit point.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Log.FlushedBytes })),
	promtable.Counter("log_flush_retries_total", "Times that writing the log began again after a failure that may pass.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Log.FlushRetries })),
	promtable.Gauge("log_flush_waiting", "Whether writing the log has failed and is tried again: 1 or 0.",
		promtable.Number(func(m *kv.Metrics) int { return number(m.Log.FlushWaiting) })),
	promtable.Counter("log_evictions_total", "Times that pages of the log left memory.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Log.Evictions })),
	promtable.Counter("log_evicted_bytes_total", "Bytes of log that left memory.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Log.EvictedBytes })),

	promtable.Gauge("memory_bytes", "Memory in use.", promtable.By("part",
		promtable.Of("log", func(m *kv.Metrics) int64 { return m.Log.MemoryBytes }),
		promtable.Of("cache", func(m *kv.Metrics) int64 { return m.ReadCache.Bytes }),
		promtable.Of("index", func(m *kv.Metrics) int64 { return m.Index.Bytes }),
	)),
	promtable.Gauge("memory_budget_bytes", "Memory that may be used; the index has no budget.", promtable.By("part",
		promtable.Of("log", func(m *kv.Metrics) int64 { return m.Log.MemoryBudget }),
		promtable.Of("cache", func(m *kv.Metrics) int64 { return m.ReadCache.Budget }),
		promtable.Of("device", func(m *kv.Metrics) int64 { return m.Device.CacheBudget }),
	)),
	promtable.Gauge("cache_records", "Records in the read cache.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.ReadCache.Records })),
	promtable.Counter("cache_hits_total", "Records that the read cache saved operations from fetching.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.ReadCache.Hits })),
	promtable.Counter("cache_added_total", "Records admitted to the read cache since its size last changed.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.ReadCache.Added })),
	promtable.Counter("cache_evicted_total", "Records pushed out of the read cache since its size last changed.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.ReadCache.Evicted })),

	promtable.Counter("sampled_accesses_total", "Accesses that were sampled for the miss ratio curve, since sampling began.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Sampling.Accesses })),
	promtable.Gauge("sampled_keys", "Keys whose accesses are sampled.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Sampling.Keys })),
	promtable.Gauge("sampled_keys_ratio", "Share of all keys whose accesses are sampled; 0: sampling is off.",
		promtable.Number(func(m *kv.Metrics) float64 { return m.Sampling.Rate })),

	promtable.Gauge("index_buckets", "Buckets of the index.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Index.Buckets })),
	promtable.Gauge("index_overflow_buckets", "Buckets in use behind full buckets of the index.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Index.Overflow })),
	promtable.Gauge("index_load_ratio", "Entries in use for each entry of the index' buckets, estimated.",
		promtable.Number(func(m *kv.Metrics) float64 { return m.Index.Load })),
	promtable.Counter("index_growths_total", "Times that the index has doubled.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Index.Growths })),

	promtable.Counter("commits_total", "Commits that were made.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Commits.Made })),
	promtable.Counter("commit_errors_total", "Commits that failed.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Commits.Failed })),
	promtable.Counter("checkpoints_total", "Checkpoints that were made.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Checkpoints.Made })),
	promtable.Counter("checkpoint_errors_total", "Checkpoints that failed.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Checkpoints.Failed })),
	promtable.Counter("checkpoint_bytes_total", "Bytes of the objects of checkpoints that were made.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Checkpoints.Bytes })),
	promtable.Gauge("checkpoints_kept", "Checkpoints that can be recovered.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Checkpoints.Kept })),
	promtable.Gauge("checkpoints_pinned_bytes", "Bytes of the log that stay on the device for checkpoints only.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Checkpoints.PinnedBytes })),
	promtable.Gauge("checkpoint_last_timestamp_seconds", "When the newest checkpoint was made, in Unix time; 0: there is none.",
		promtable.Number(func(m *kv.Metrics) float64 {
			if m.Checkpoints.Last.IsZero() {
				return 0
			}
			return float64(m.Checkpoints.Last.UnixNano()) / 1e9
		})),
	promtable.Gauge("checkpoint_last_duration_seconds", "Time that the newest checkpoint took.",
		promtable.Seconds(func(m *kv.Metrics) time.Duration { return m.Checkpoints.LastDuration })),
	promtable.Gauge("checkpoint_last_bytes", "Bytes of the objects of the newest checkpoint.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Checkpoints.LastBytes })),

	promtable.Counter("evicted_portions_total", "Parts of the log that eviction dropped.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Eviction.Portions })),
	promtable.Counter("evicted_keys_total", "Keys that eviction dropped.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Eviction.Keys })),
	promtable.Counter("evicted_log_bytes_total", "Bytes by which eviction moved the log's begin.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Eviction.Bytes })),
	promtable.Counter("eviction_kept_records_total", "Records that eviction copied to the tail.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Eviction.Kept })),
	promtable.Counter("eviction_kept_bytes_total", "Bytes that eviction copied to the tail.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Eviction.KeptBytes })),
	promtable.Counter("compactions_total", "Compactions.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Compaction.Runs })),
	promtable.Counter("compaction_read_records_total", "Records that compactions went through.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Compaction.ReadRecords })),
	promtable.Counter("compaction_read_bytes_total", "Bytes of the records that compactions went through.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Compaction.ReadBytes })),
	promtable.Counter("compaction_copied_records_total", "Records that compactions copied to the tail.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Compaction.CopiedRecords })),
	promtable.Counter("compaction_copied_bytes_total", "Bytes of the records that compactions copied to the tail.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Compaction.CopiedBytes })),
	promtable.Counter("compaction_reclaimed_bytes_total", "Bytes by which compactions moved the log's begin.",
		promtable.Number(func(m *kv.Metrics) int64 { return m.Compaction.ReclaimedBytes })),

	promtable.Counter("barriers_total", "Barriers between the operations of all sessions.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.Barriers.Count })),
	promtable.Counter("barrier_seconds_total", "Time that barriers kept operations waiting.",
		promtable.Seconds(func(m *kv.Metrics) time.Duration { return m.Barriers.Sum })),
	promtable.Gauge("barrier_last_seconds", "Time that the last barrier kept operations waiting.",
		promtable.Seconds(func(m *kv.Metrics) time.Duration { return m.Barriers.Last })),
	promtable.Gauge("barrier_max_seconds", "Longest time that a barrier kept operations waiting.",
		promtable.Seconds(func(m *kv.Metrics) time.Duration { return m.Barriers.Max })),
	promtable.Counter("background_errors_total", "Errors where no caller waited for the work.",
		promtable.Number(func(m *kv.Metrics) uint64 { return m.BackgroundErrors })),
}

// tierFamilies have one sample per tier of the device.
var tierFamilies = []promtable.Family[device.TierMetrics]{
	promtable.Gauge("healthy", "Whether the tier is in the set: 1 or 0.", promtable.Number(func(t *device.TierMetrics) int { return number(t.Healthy) })),
	promtable.Gauge("begin_address_bytes", "Lowest address of the log that the tier answers for.",
		promtable.Number(func(t *device.TierMetrics) int64 { return t.Begin })),
	promtable.Counter("hits_total", "Reads that the tier answered.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.Hits })),
	promtable.Counter("read_bytes_total", "Bytes read from the tier.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.BytesRead })),
	promtable.Counter("written_bytes_total", "Bytes written to the tier.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.BytesWritten })),
	promtable.Counter("fall_throughs_total", "Reads that the tier was asked for and did not answer.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.FallThroughs })),
	promtable.Counter("read_errors_total", "Of these, reads that failed.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.ReadErrors })),
	promtable.Counter("write_errors_total", "Writes that failed.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.WriteErrors })),
	promtable.Counter("failures_total", "Errors that counted against the tier's health.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.Failures })),
	promtable.Counter("restarts_total", "Times that the tier came back into the set.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.Restarts })),
	promtable.Gauge("backlog_bytes", "Bytes that were handed to the tier and are not there yet.",
		promtable.Number(func(t *device.TierMetrics) int64 { return t.Backlog })),
	promtable.Gauge("read_mean_seconds", "Mean time of a read that the tier answered, of a sample.",
		promtable.Seconds(func(t *device.TierMetrics) time.Duration { return t.ReadMean })),
	promtable.Gauge("read_p99_seconds", "99th percentile of these times.",
		promtable.Seconds(func(t *device.TierMetrics) time.Duration { return t.ReadP99 })),
	promtable.Gauge("write_mean_seconds", "Mean time of a write to the tier.",
		promtable.Seconds(func(t *device.TierMetrics) time.Duration { return t.WriteMean })),
	promtable.Gauge("write_p99_seconds", "99th percentile of these times.",
		promtable.Seconds(func(t *device.TierMetrics) time.Duration { return t.WriteP99 })),
	promtable.Gauge("missing_bytes", "Bytes that the tier has room for and has lost, or not got back yet.",
		promtable.Number(func(t *device.TierMetrics) int64 { return t.Missing })),
	promtable.Gauge("complete", "1 while all of the tier's memory is there, 0 while part of it is lost.",
		promtable.Number(func(t *device.TierMetrics) int {
			if t.Lost != nil {
				return 0
			}
			return 1
		})),
	promtable.Counter("refills_total", "Pieces of these that were copied back from the tiers behind.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.Refills })),
	promtable.Counter("refilled_bytes_total", "Bytes that were copied back.",
		promtable.Number(func(t *device.TierMetrics) uint64 { return t.Refilled })),
}

// number returns 1 for true and 0 for false.
func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
