// Package prom exports a manager's metrics to Prometheus.
package prom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/internal/metrics/promtable"
	"github.com/redykv/redykv/manager"
)

// Source provides metrics; it is usually a [manager.Manager].
type Source interface{ Metrics() manager.Metrics }

const namespace = "redykv_manager_"

var families = []promtable.Family[manager.Metrics]{
	promtable.Gauge("caches", "Caches.",
		promtable.Number(func(m *manager.Metrics) int { return m.Caches })),
	promtable.Gauge("capacity_bytes", "Capacity of all caches, as asked.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Capacity })),
	promtable.Gauge("cost_dollars_per_hour", "Price of all caches, of old and new VMs while they move.",
		promtable.Number(func(m *manager.Metrics) float64 { return m.Cost.Dollars() })),
	promtable.Gauge("warm_cost_dollars_per_hour", "Price of the VMs that are kept ready.",
		promtable.Number(func(m *manager.Metrics) float64 { return m.WarmCost.Dollars() })),
	promtable.Gauge("migration_bytes_per_second", "Rate at which memory leaves a VM, as measured by caches.",
		promtable.Number(func(m *manager.Metrics) float64 { return m.MigrationRate })),
	promtable.Counter("allocations_total", "Caches that were allocated.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Allocated })),
	promtable.Counter("refusals_total", "Allocations refused for too little memory.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Refused })),
	promtable.Counter("reallocations_total", "Times that a cache got more grants.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Reallocated })),
	promtable.Counter("moves_asked_total", "Times that a cache was asked to move.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.MovesAsked })),
	promtable.Counter("reclaims_total", "VMs that were reclaimed.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Reclaimed })),
	promtable.Counter("failures_total", "VMs that failed.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Failed })),
	promtable.Counter("suspicions_total", "VMs that fell silent while caches had memory there.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Suspected })),
	promtable.Counter("blindings_total", "Times that at least half of the servers fell silent together, and none was suspected.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Blinded })),
	promtable.Gauge("blind", "1 while at least half of the servers are silent and none is suspected.",
		promtable.Number(func(m *manager.Metrics) int {
			if m.Blind {
				return 1
			}
			return 0
		})),
}

var (
	numbers = promtable.New(namespace, nil, families)

	vms    = prometheus.NewDesc(namespace+"vms", "VMs, by type, state and machine.", []string{"type", "spot", "state", "machine"}, nil)
	named  = prometheus.NewDesc(namespace+"vm_info", "1 for each VM that has a name of the allocator's, such as that of a pod.", []string{"vm", "type", "machine", "name"}, nil)
	notice = prometheus.NewDesc(namespace+"notice_left_seconds", "Notice that was left when a cache had left its VM.", nil, nil)
)

type collector struct{ source Source }

// NewCollector returns a collector of all [manager.Metrics].
func NewCollector(source Source) prometheus.Collector { return collector{source} }

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	numbers.Describe(to)
	to <- vms
	to <- named
	to <- notice
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	m := c.source.Metrics()
	numbers.Collect(to, &m)
	for _, v := range m.VMs {
		to <- prometheus.MustNewConstMetric(vms, prometheus.GaugeValue, float64(v.VMs), v.Type, strconv.FormatBool(v.Spot), v.State, v.Machine)
	}
	for _, v := range m.Named {
		to <- prometheus.MustNewConstMetric(named, prometheus.GaugeValue, 1, v.VM, v.Type, v.Machine, v.Name)
	}
	buckets := make(map[float64]uint64)
	for i, bound := range m.NoticeLeft.Bounds {
		buckets[bound.Seconds()] = m.NoticeLeft.Counts[i]
	}
	to <- prometheus.MustNewConstHistogram(notice, m.NoticeLeft.Count, m.NoticeLeft.Sum.Seconds(), buckets)
}
