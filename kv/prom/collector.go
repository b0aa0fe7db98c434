// Package prom offers a store's metrics to Prometheus.
package prom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/kv"
)

// Source is what is measured: a [kv.Store].
type Source interface{ Metrics() kv.Metrics }

// collector asks its source once for every scrape. Its fields do not change.
type collector struct {
	source   Source
	families []*prometheus.Desc // in the order of the variable families
	tiers    []*prometheus.Desc // in that of tierFamilies
}

// NewCollector returns a collector for every number of [kv.Metrics]. All that it
// collects has the labels, which may be nil: they tell the stores of a process
// apart.
func NewCollector(source Source, labels prometheus.Labels) prometheus.Collector {
	c := &collector{source: source}
	for _, f := range families {
		var names []string
		if f.label != "" {
			names = []string{f.label}
		}
		c.families = append(c.families, prometheus.NewDesc(namespace+f.name, f.help, names, labels))
	}
	for _, f := range tierFamilies {
		c.tiers = append(c.tiers, prometheus.NewDesc(namespace+"tier_"+f.name, f.help, []string{"tier", "name"}, labels))
	}
	return c
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, list := range [][]*prometheus.Desc{c.families, c.tiers} {
		for _, d := range list {
			to <- d
		}
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	m := c.source.Metrics()
	for i, f := range families {
		for _, s := range f.samples {
			var values []string
			if f.label != "" {
				values = []string{s.label}
			}
			to <- prometheus.MustNewConstMetric(c.families[i], f.kind, s.value(&m), values...)
		}
	}
	for number := range m.Tiers {
		t := &m.Tiers[number]
		for i, f := range tierFamilies {
			to <- prometheus.MustNewConstMetric(c.tiers[i], f.kind, f.value(t), strconv.Itoa(number), t.Name)
		}
	}
}
