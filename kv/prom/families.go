package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// namespace begins every name.
const namespace = "redykv_"

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// family is one name, with a sample for each value of its label, or without a
// label and with one sample.
type family struct {
	name, help string
	kind       prometheus.ValueType
	label      string
	samples    []sample
}

type sample struct {
	label string // its value
	value func(m *kv.Metrics) float64
}

// number is a value of its own.
func number[N int | int64 | uint64 | float64](get func(m *kv.Metrics) N) []sample {
	return []sample{{"", func(m *kv.Metrics) float64 { return float64(get(m)) }}}
}

// seconds is a duration.
func seconds(get func(m *kv.Metrics) time.Duration) []sample {
	return []sample{{"", func(m *kv.Metrics) float64 { return get(m).Seconds() }}}
}

// of is one of several values of a family.
func of[N int | int64 | uint64](label string, get func(m *kv.Metrics) N) sample {
	return sample{label, func(m *kv.Metrics) float64 { return float64(get(m)) }}
}

var families = []family{
	{"operations_total", "Operations that were begun, by kind.", counter, "kind", []sample{
		of("read", func(m *kv.Metrics) uint64 { return m.Reads }),
		of("upsert", func(m *kv.Metrics) uint64 { return m.Upserts }),
		of("rmw", func(m *kv.Metrics) uint64 { return m.RMWs }),
		of("delete", func(m *kv.Metrics) uint64 { return m.Deletes }),
		of("insert", func(m *kv.Metrics) uint64 { return m.Inserts }),
	}},
	{"reads_answered_total", "Reads, by what answered them.", counter, "from", []sample{
		of("memory", func(m *kv.Metrics) uint64 { return m.ReadsMemory }),
		of("cache", func(m *kv.Metrics) uint64 { return m.ReadsCache }),
		of("tier0", func(m *kv.Metrics) uint64 { return m.ReadsTier[0] }),
		of("tier1", func(m *kv.Metrics) uint64 { return m.ReadsTier[1] }),
		of("tier2", func(m *kv.Metrics) uint64 { return m.ReadsTier[2] }),
		of("tier3", func(m *kv.Metrics) uint64 { return m.ReadsTier[3] }),
	}},
	{"device_reads_total", "Records fetched from the device, for all operations.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.DeviceReads })},
	{"sessions", "Sessions that are open.", gauge, "",
		number(func(m *kv.Metrics) int { return m.Sessions })},
	{"named_sessions", "Sessions that are open and have a name.", gauge, "",
		number(func(m *kv.Metrics) int { return m.NamedSessions })},

	{"log_address_bytes", "Where the log's markers are in its address space.", gauge, "marker", []sample{
		of("begin", func(m *kv.Metrics) int64 { return m.Begin }),
		of("head", func(m *kv.Metrics) int64 { return m.Head }),
		of("flushed", func(m *kv.Metrics) int64 { return m.Flushed }),
		of("read_only", func(m *kv.Metrics) int64 { return m.ReadOnly }),
		of("tail", func(m *kv.Metrics) int64 { return m.Tail }),
	}},
	{"log_flushes_total", "Writes of the log that reached the device's commit point.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.Flushes })},
	{"log_flushed_bytes_total", "Bytes of log that reached the device's commit point.", counter, "",
		number(func(m *kv.Metrics) int64 { return m.FlushedBytes })},
	{"log_evictions_total", "Times that pages of the log left memory.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.Evictions })},
	{"log_evicted_bytes_total", "Bytes of log that left memory.", counter, "",
		number(func(m *kv.Metrics) int64 { return m.EvictedBytes })},

	{"memory_bytes", "Memory in use.", gauge, "part", []sample{
		of("log", func(m *kv.Metrics) int64 { return m.MemoryBytes }),
		of("cache", func(m *kv.Metrics) int64 { return m.CacheBytes }),
		of("index", func(m *kv.Metrics) int64 { return m.IndexBytes }),
	}},
	{"memory_budget_bytes", "Memory that may be used; the index has no budget.", gauge, "part", []sample{
		of("log", func(m *kv.Metrics) int64 { return m.MemoryBudget }),
		of("cache", func(m *kv.Metrics) int64 { return m.CacheBudget }),
		of("device", func(m *kv.Metrics) int64 { return m.DeviceCacheBudget }),
	}},
	{"cache_records", "Records in the read cache.", gauge, "",
		number(func(m *kv.Metrics) int64 { return m.CacheEntries })},
	{"cache_hits_total", "Records that the read cache saved operations from fetching.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.CacheHits })},
	{"cache_added_total", "Records admitted to the read cache since its size last changed.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.CacheAdded })},
	{"cache_evicted_total", "Records pushed out of the read cache since its size last changed.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.CacheEvicted })},

	{"index_buckets", "Buckets of the index.", gauge, "",
		number(func(m *kv.Metrics) int64 { return m.IndexBuckets })},
	{"index_overflow_buckets", "Buckets in use behind full buckets of the index.", gauge, "",
		number(func(m *kv.Metrics) int64 { return m.IndexOverflow })},
	{"index_load_ratio", "Entries in use for each entry of the index' buckets, estimated.", gauge, "",
		number(func(m *kv.Metrics) float64 { return m.IndexLoad })},
	{"index_growths_total", "Times that the index has doubled.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.IndexGrowths })},

	{"commits_total", "Commits that were made.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.Commits })},
	{"commit_errors_total", "Commits that failed.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.CommitErrors })},
	{"checkpoints_total", "Checkpoints that were made.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.Checkpoints })},
	{"checkpoint_errors_total", "Checkpoints that failed.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.CheckpointErrors })},
	{"checkpoint_bytes_total", "Bytes of the objects of checkpoints that were made.", counter, "",
		number(func(m *kv.Metrics) int64 { return m.CheckpointBytes })},
	{"checkpoints_kept", "Checkpoints that can be recovered.", gauge, "",
		number(func(m *kv.Metrics) int64 { return m.CheckpointsKept })},
	{"checkpoint_last_timestamp_seconds", "When the newest checkpoint was made, in Unix time; 0: there is none.", gauge, "",
		[]sample{{"", func(m *kv.Metrics) float64 {
			if m.LastCheckpoint.IsZero() {
				return 0
			}
			return float64(m.LastCheckpoint.UnixNano()) / 1e9
		}}}},
	{"checkpoint_last_duration_seconds", "Time that the newest checkpoint took.", gauge, "",
		seconds(func(m *kv.Metrics) time.Duration { return m.LastCheckpointDuration })},
	{"checkpoint_last_bytes", "Bytes of the objects of the newest checkpoint.", gauge, "",
		number(func(m *kv.Metrics) int64 { return m.LastCheckpointBytes })},

	{"compactions_total", "Compactions.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.Compactions })},
	{"compaction_read_records_total", "Records that compactions went through.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.CompactedRecords })},
	{"compaction_read_bytes_total", "Bytes of the records that compactions went through.", counter, "",
		number(func(m *kv.Metrics) int64 { return m.CompactedBytes })},
	{"compaction_copied_records_total", "Records that compactions copied to the tail.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.CopiedRecords })},
	{"compaction_copied_bytes_total", "Bytes of the records that compactions copied to the tail.", counter, "",
		number(func(m *kv.Metrics) int64 { return m.CopiedBytes })},
	{"compaction_reclaimed_bytes_total", "Bytes by which compactions moved the log's begin.", counter, "",
		number(func(m *kv.Metrics) int64 { return m.ReclaimedBytes })},

	{"barriers_total", "Barriers between the operations of all sessions.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.Barriers })},
	{"barrier_seconds_total", "Time that barriers kept operations waiting.", counter, "",
		seconds(func(m *kv.Metrics) time.Duration { return m.BarrierSum })},
	{"barrier_last_seconds", "Time that the last barrier kept operations waiting.", gauge, "",
		seconds(func(m *kv.Metrics) time.Duration { return m.BarrierLast })},
	{"barrier_max_seconds", "Longest time that a barrier kept operations waiting.", gauge, "",
		seconds(func(m *kv.Metrics) time.Duration { return m.BarrierMax })},
	{"background_errors_total", "Errors where no caller waited for the work.", counter, "",
		number(func(m *kv.Metrics) uint64 { return m.BackgroundErrors })},
}

// tierFamily is one name, with a sample for each tier of the device.
type tierFamily struct {
	name, help string
	kind       prometheus.ValueType
	value      func(t *device.TierMetrics) float64
}

var tierFamilies = []tierFamily{
	{"healthy", "Whether the tier is in the set: 1 or 0.", gauge, func(t *device.TierMetrics) float64 {
		if t.Healthy {
			return 1
		}
		return 0
	}},
	{"begin_address_bytes", "Lowest address of the log that the tier answers for.", gauge,
		func(t *device.TierMetrics) float64 { return float64(t.Begin) }},
	{"hits_total", "Reads that the tier answered.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.Hits) }},
	{"read_bytes_total", "Bytes read from the tier.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.BytesRead) }},
	{"written_bytes_total", "Bytes written to the tier.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.BytesWritten) }},
	{"fall_throughs_total", "Reads that the tier was asked for and did not answer.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.FallThroughs) }},
	{"read_errors_total", "Of these, reads that failed.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.ReadErrors) }},
	{"write_errors_total", "Writes that failed.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.WriteErrors) }},
	{"failures_total", "Errors that counted against the tier's health.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.Failures) }},
	{"restarts_total", "Times that the tier came back into the set.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.Restarts) }},
	{"backlog_bytes", "Bytes that were handed to the tier and are not there yet.", gauge,
		func(t *device.TierMetrics) float64 { return float64(t.Backlog) }},
	{"read_mean_seconds", "Mean time of a read that the tier answered, of a sample.", gauge,
		func(t *device.TierMetrics) float64 { return t.ReadMean.Seconds() }},
	{"read_p99_seconds", "99th percentile of these times.", gauge,
		func(t *device.TierMetrics) float64 { return t.ReadP99.Seconds() }},
	{"write_mean_seconds", "Mean time of a write to the tier.", gauge,
		func(t *device.TierMetrics) float64 { return t.WriteMean.Seconds() }},
	{"write_p99_seconds", "99th percentile of these times.", gauge,
		func(t *device.TierMetrics) float64 { return t.WriteP99.Seconds() }},
	{"missing_bytes", "Bytes above its begin address that the tier has lost, or not got back yet.", gauge,
		func(t *device.TierMetrics) float64 { return float64(t.Missing) }},
	{"refills_total", "Pieces of these that were copied back from the tiers behind.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.Refills) }},
	{"refilled_bytes_total", "Bytes that were copied back.", counter,
		func(t *device.TierMetrics) float64 { return float64(t.Refilled) }},
}
