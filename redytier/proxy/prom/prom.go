// Package prom exports a proxy's metrics to Prometheus.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/internal/metrics/promtable"
	"github.com/redykv/redykv/redytier/proxy"
)

// Source provides metrics; it is usually a [proxy.Proxy].
type Source interface{ Metrics() proxy.Metrics }

var numbers = promtable.New("redykv_proxy_", nil, []promtable.Family[proxy.Metrics]{
	promtable.Gauge("caches", "Caches that the proxy has created.",
		promtable.Number(func(m *proxy.Metrics) int { return m.Caches })),
	promtable.Gauge("capacity_bytes", "Capacity of these caches.",
		promtable.Number(func(m *proxy.Metrics) int64 { return m.Capacity })),
	promtable.Gauge("requests", "Requests that are being served.",
		promtable.Number(func(m *proxy.Metrics) int { return m.Requests })),
	promtable.Counter("errors_total", "Requests that were answered with an error.",
		promtable.Number(func(m *proxy.Metrics) uint64 { return m.Errors })),
	promtable.Counter("pieces_total", "Accesses to caches, of up to 256 KiB.", promtable.By("op",
		promtable.Of("read", func(m *proxy.Metrics) uint64 { return m.PiecesRead }),
		promtable.Of("write", func(m *proxy.Metrics) uint64 { return m.PiecesWritten }))),
	promtable.Counter("bytes_total", "Bytes of these accesses.", promtable.By("op",
		promtable.Of("read", func(m *proxy.Metrics) uint64 { return m.BytesRead }),
		promtable.Of("write", func(m *proxy.Metrics) uint64 { return m.BytesWritten }))),
	promtable.Gauge("buffers_used", "Buffers of 256 KiB that requests hold.",
		promtable.Number(func(m *proxy.Metrics) int { return m.BuffersUsed })),
})

// NewCollector returns a collector of all [proxy.Metrics].
func NewCollector(source Source) prometheus.Collector { return numbers.Collector(source.Metrics) }
