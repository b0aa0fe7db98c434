// Package prom exports a store's metrics to Prometheus.
package prom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/metrics/promtable"
	"github.com/redykv/redykv/kv"
)

// Source is implemented by [kv.Store].
type Source interface{ Metrics() kv.Metrics }

// collector reads its source once per scrape. Its fields do not change.
type collector struct {
	source Source
	store  promtable.Table[kv.Metrics]
	tiers  promtable.Table[device.TierMetrics]
}

// NewCollector returns a collector for all numbers of [kv.Metrics]. labels is added to all
// metrics and may be nil; it distinguishes stores in one process.
func NewCollector(source Source, labels prometheus.Labels) prometheus.Collector {
	return &collector{
		source: source,
		store:  promtable.New(namespace, labels, families),
		tiers:  promtable.New(namespace+"tier_", labels, tierFamilies, "tier", "name"),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	c.store.Describe(to)
	c.tiers.Describe(to)
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	m := c.source.Metrics()
	c.store.Collect(to, &m)
	for number := range m.Device.Tiers {
		t := &m.Device.Tiers[number]
		c.tiers.Collect(to, t, strconv.Itoa(number), t.Name)
	}
}
