// Package prom offers a manager's metrics to Prometheus.
package prom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/manager"
)

// Source is what is measured: a [manager.Manager].
type Source interface{ Metrics() manager.Metrics }

const namespace = "redykv_manager_"

// family is a number of [manager.Metrics].
type family struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*manager.Metrics) float64
}

func gauge(name, help string, value func(*manager.Metrics) float64) family {
	return family{prometheus.NewDesc(namespace+name, help, nil, nil), prometheus.GaugeValue, value}
}

func counter(name, help string, value func(*manager.Metrics) float64) family {
	return family{prometheus.NewDesc(namespace+name, help, nil, nil), prometheus.CounterValue, value}
}

var families = []family{
	gauge("caches", "Caches.", func(m *manager.Metrics) float64 { return float64(m.Caches) }),
	gauge("capacity_bytes", "Capacity of all caches, as asked.", func(m *manager.Metrics) float64 { return float64(m.Capacity) }),
	gauge("cost_dollars_per_hour", "Price of all caches, of old and new VMs while they move.", func(m *manager.Metrics) float64 { return m.Cost.Dollars() }),
	gauge("warm_cost_dollars_per_hour", "Price of the VMs that are kept ready.", func(m *manager.Metrics) float64 { return m.WarmCost.Dollars() }),
	gauge("migration_bytes_per_second", "How fast memory leaves a VM, as caches have measured it.", func(m *manager.Metrics) float64 { return m.MigrationRate }),
	counter("allocations_total", "Caches that were allocated.", func(m *manager.Metrics) float64 { return float64(m.Allocated) }),
	counter("refusals_total", "Allocations for which there was too little.", func(m *manager.Metrics) float64 { return float64(m.Refused) }),
	counter("reallocations_total", "Times that a cache got further VMs.", func(m *manager.Metrics) float64 { return float64(m.Reallocated) }),
	counter("moves_asked_total", "Times that a cache was told of cheaper VMs.", func(m *manager.Metrics) float64 { return float64(m.MovesAsked) }),
	counter("reclaims_total", "VMs that were announced to go.", func(m *manager.Metrics) float64 { return float64(m.Reclaimed) }),
	counter("failures_total", "VMs that are gone.", func(m *manager.Metrics) float64 { return float64(m.Failed) }),
}

var (
	vms    = prometheus.NewDesc(namespace+"vms", "VMs, by type and state.", []string{"type", "spot", "state"}, nil)
	notice = prometheus.NewDesc(namespace+"notice_left_seconds", "Notice that was left when a cache had left its VM.", nil, nil)
)

type collector struct{ source Source }

// NewCollector returns a collector for every number of [manager.Metrics].
func NewCollector(source Source) prometheus.Collector { return collector{source} }

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range families {
		to <- f.desc
	}
	to <- vms
	to <- notice
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	m := c.source.Metrics()
	for _, f := range families {
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(&m))
	}
	for _, v := range m.VMs {
		to <- prometheus.MustNewConstMetric(vms, prometheus.GaugeValue, float64(v.VMs), v.Type, strconv.FormatBool(v.Spot), v.State)
	}
	buckets := make(map[float64]uint64)
	for i, bound := range m.NoticeLeft.Bounds {
		buckets[bound.Seconds()] = m.NoticeLeft.Counts[i]
	}
	to <- prometheus.MustNewConstHistogram(notice, m.NoticeLeft.Count, m.NoticeLeft.Sum.Seconds(), buckets)
}
