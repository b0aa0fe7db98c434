// Package prom exports the state of a store's bucket to Prometheus.
package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/device/blob"
	"github.com/redykv/redykv/internal/metrics/promtable"
)

// Source is implemented by [blob.Device].
type Source interface{ Status() blob.Status }

// NewCollector returns a collector for all numbers of [blob.Status]. labels is added to all
// metrics and may be nil.
func NewCollector(source Source, labels prometheus.Labels) prometheus.Collector {
	return promtable.New("redykv_bucket_", labels, families).Collector(source.Status)
}

var families = []promtable.Family[blob.Status]{
	promtable.Gauge("empty", "Whether no upload to the bucket has ever succeeded: 1 or 0.",
		promtable.Bool(func(s *blob.Status) bool { return s.Empty })),
	promtable.Gauge("failing", "Whether the last upload failed: 1 or 0.",
		promtable.Bool(func(s *blob.Status) bool { return s.Err != nil })),
	promtable.Gauge("behind", "Whether something has to be uploaded: 1 or 0.",
		promtable.Bool(func(s *blob.Status) bool { return s.Behind })),
	promtable.Gauge("uploaded_seconds", "Time of the last successful upload, in seconds since 1970; 0: none since the start.",
		promtable.Time(func(s *blob.Status) time.Time { return s.Uploaded })),
	promtable.Gauge("catalog", "Number of the newest state in the bucket; 0: none, or the bucket was not reachable yet.",
		promtable.Number(func(s *blob.Status) int64 { return s.Catalog })),
	promtable.Gauge("log_end_bytes", "Address up to which the bucket has the log.",
		promtable.Number(func(s *blob.Status) int64 { return s.LogEnd })),
	promtable.Gauge("segments", "Blobs with parts of the log.",
		promtable.Number(func(s *blob.Status) int { return s.Segments })),
	promtable.Counter("uploads_total", "States stored in the bucket.",
		promtable.Number(func(s *blob.Status) uint64 { return s.Uploads })),
	promtable.Counter("uploaded_bytes_total", "Bytes read to be uploaded.",
		promtable.Number(func(s *blob.Status) uint64 { return s.BytesUp })),
	promtable.Counter("reads_total", "Ranges of the log that were read in the bucket.",
		promtable.Number(func(s *blob.Status) uint64 { return s.BucketReads })),
	promtable.Counter("read_bytes_total", "Bytes of the log that were read in the bucket.",
		promtable.Number(func(s *blob.Status) uint64 { return s.BytesDown })),
	promtable.Counter("retries_total", "Requests that were tried again.",
		promtable.Number(func(s *blob.Status) uint64 { return s.Retries })),
	promtable.Counter("repairs_total", "Reads that the local device failed and the bucket answered.",
		promtable.Number(func(s *blob.Status) uint64 { return s.Repairs })),
}
