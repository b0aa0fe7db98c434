// Package prom offers a store's metrics to Prometheus.
package prom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/metrics/promtable"
	"github.com/redykv/redykv/kv"
)

// Source is what is measured: a [kv.Store].
type Source interface{ Metrics() kv.Metrics }

// collector asks its source once for every scrape. Its fields do not change.
type collector struct {
	source Source
	store  promtable.Table[kv.Metrics]
	tiers  promtable.Table[device.TierMetrics]
}

// NewCollector returns a collector for every number of [kv.Metrics]. All that it
// collects has the labels, which may be nil: they tell the stores of a process
// apart.
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
