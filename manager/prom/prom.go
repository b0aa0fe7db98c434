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
	promtable.Gauge("lingering_caches", "Caches whose lease has ended, and that are kept for another client.",
		promtable.Number(func(m *manager.Metrics) int { return m.Lingers })),
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
	promtable.Counter("attachments_total", "Times that another client took a cache up.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Attached })),
	promtable.Counter("expirations_total", "Caches that were deallocated because their leases or enforced durations had ended.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Expired })),
	promtable.Counter("moves_asked_total", "Times that a cache was asked to move.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.MovesAsked })),
	promtable.Counter("reconfigures_asked_total", "Times that a cache was asked for another configuration, because its SLO was broken, or is kept with less.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.ReconfiguresAsked })),
	promtable.Counter("calibrations_total", "Kinds of machines for which models of others were scaled.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Calibrated })),
	promtable.Counter("corrections_total", "Times that a model was corrected by what a cache gave.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Corrected })),
	promtable.Counter("reclaims_total", "VMs that were reclaimed.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Reclaimed })),
	promtable.Counter("failures_total", "VMs that failed.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Failed })),
	promtable.Counter("suspicions_total", "VMs that fell silent while caches had memory there.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Suspected })),
	promtable.Counter("blindings_total", "Times that at least half of the servers fell silent together, and none was suspected.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Blinded })),
	promtable.Counter("renewals_refused_total", "Renewals of leases that were refused for their token.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.RenewalsRefused })),
	promtable.Counter("brakings_total", "Times that at least half of the clients fell silent together, and no lease ended.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.Braked })),
	promtable.Counter("slo_windows_judged_total", "Windows that clients measured, and that were judged by the SLOs of their caches.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.WindowsJudged })),
	promtable.Counter("slo_windows_missed_total", "Judged windows that missed the SLO.",
		promtable.Number(func(m *manager.Metrics) uint64 { return m.WindowsMissed })),
	promtable.Gauge("slo_broken_caches", "Caches whose SLO is broken by what their clients measure.",
		promtable.Number(func(m *manager.Metrics) int { return m.Broken })),
	promtable.Gauge("unknown_grants", "Grants that clients use and whose caches the catalog does not know. They stay lent.",
		promtable.Number(func(m *manager.Metrics) int { return m.UnknownGrants })),
	promtable.Gauge("blind", "1 while at least half of the servers are silent and none is suspected.",
		promtable.Bool(func(m *manager.Metrics) bool { return m.Blind })),
}

var (
	numbers = promtable.New(namespace, nil, families)

	pool    = []string{"type", "spot", "state", "machine"}
	vms     = prometheus.NewDesc(namespace+"vms", "VMs, by type, state and machine.", pool, nil)
	memory  = prometheus.NewDesc(namespace+"vm_memory_bytes", "Memory that VMs can lend, by type, state and machine.", pool, nil)
	free    = prometheus.NewDesc(namespace+"vm_free_bytes", "Memory of VMs that no cache has, by type, state and machine.", pool, nil)
	calls   = prometheus.NewDesc(namespace+"call_seconds", "Times of calls, waiting included, by procedure.", []string{"procedure"}, nil)
	commits = prometheus.NewDesc(namespace+"catalog_commit_seconds", "Times of writes of the catalog.", nil, nil)
	named   = prometheus.NewDesc(namespace+"vm_info", "1 for each VM that has a name of the allocator's, such as that of a pod.", []string{"vm", "type", "machine", "name"}, nil)
	broken  = prometheus.NewDesc(namespace+"cache_slo_broken", "1 for each cache whose SLO is broken, and for 100 at most.", []string{"cache"}, nil)
	notice  = prometheus.NewDesc(namespace+"notice_left_seconds", "Notice that was left when a cache had left its VM.", nil, nil)
)

type collector struct{ source Source }

// NewCollector returns a collector of all [manager.Metrics].
func NewCollector(source Source) prometheus.Collector { return collector{source} }

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	numbers.Describe(to)
	to <- vms
	to <- memory
	to <- free
	to <- calls
	to <- commits
	to <- named
	to <- broken
	to <- notice
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	m := c.source.Metrics()
	numbers.Collect(to, &m)
	for _, v := range m.VMs {
		for desc, n := range map[*prometheus.Desc]float64{vms: float64(v.VMs), memory: float64(v.Memory), free: float64(v.Free)} {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, v.Type, strconv.FormatBool(v.Spot), v.State, v.Machine)
		}
	}
	for _, v := range m.Named {
		to <- prometheus.MustNewConstMetric(named, prometheus.GaugeValue, 1, v.VM, v.Type, v.Machine, v.Name)
	}
	for _, id := range m.BrokenCaches {
		to <- prometheus.MustNewConstMetric(broken, prometheus.GaugeValue, 1, id)
	}
	to <- histogram(notice, &m.NoticeLeft)
	to <- histogram(commits, &m.Commits)
	for i := range m.Calls {
		to <- histogram(calls, &m.Calls[i].Durations, m.Calls[i].Procedure)
	}
}

func histogram(desc *prometheus.Desc, d *manager.Durations, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64)
	for i, bound := range d.Bounds {
		buckets[bound.Seconds()] = d.Counts[i]
	}
	return prometheus.MustNewConstHistogram(desc, d.Count, d.Sum.Seconds(), buckets, labels...)
}
