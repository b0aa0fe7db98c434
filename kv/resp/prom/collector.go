// Package prom offers a server's metrics to Prometheus.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/kv/resp"
)

// Source is what is measured: a [resp.Server].
type Source interface {
	Metrics() resp.Metrics
	Commands() []resp.CommandMetrics
}

// collector asks its source once for every scrape. Its fields do not change.
type collector struct {
	source   Source
	families []*prometheus.Desc // in the order of the variable families
	latency  *prometheus.Desc
	// Of each command that was called:
	calls, seconds *prometheus.Desc
}

// namespace begins every name.
const namespace = "redykv_server_"

// family is one name, with a sample for each value of its label, or without a label
// and with one sample.
type family struct {
	name, help string
	kind       prometheus.ValueType
	label      string
	samples    []sample
}

type sample struct {
	label string // its value
	value func(m *resp.Metrics) float64
}

var families = []family{
	{"clients", "Clients that are connected.", prometheus.GaugeValue, "", []sample{
		{"", func(m *resp.Metrics) float64 { return float64(m.Clients) }},
	}},
	{"connections_total", "Connections that were accepted.", prometheus.CounterValue, "", []sample{
		{"", func(m *resp.Metrics) float64 { return float64(m.Connections) }},
	}},
	{"disconnected_total", "Connections that the server ended, by reason.", prometheus.CounterValue, "reason", []sample{
		{"rejected", func(m *resp.Metrics) float64 { return float64(m.Rejected) }},
		{"idle", func(m *resp.Metrics) float64 { return float64(m.Idle) }},
		{"slow", func(m *resp.Metrics) float64 { return float64(m.Slow) }},
	}},
	{"commands_total", "Commands that were carried out or refused.", prometheus.CounterValue, "", []sample{
		{"", func(m *resp.Metrics) float64 { return float64(m.Commands) }},
	}},
	{"bytes_total", "Bytes received from clients and sent to them.", prometheus.CounterValue, "direction", []sample{
		{"in", func(m *resp.Metrics) float64 { return float64(m.BytesIn) }},
		{"out", func(m *resp.Metrics) float64 { return float64(m.BytesOut) }},
	}},
	{"buffer_bytes", "Memory for commands that have not arrived whole and replies that have not been taken.", prometheus.GaugeValue, "of", []sample{
		{"requests", func(m *resp.Metrics) float64 { return float64(m.RequestBytes) }},
		{"replies", func(m *resp.Metrics) float64 { return float64(m.ReplyBytes) }},
	}},
}

// NewCollector returns a collector for every number of [resp.Metrics]. All that it
// collects has the labels, which may be nil: they tell the servers of a process
// apart.
func NewCollector(source Source, labels prometheus.Labels) prometheus.Collector {
	c := &collector{
		source: source,
		latency: prometheus.NewDesc(namespace+"batch_seconds",
			"Time from the arrival of a batch of commands to the moment when its replies are sent.", nil, labels),
		calls: prometheus.NewDesc(namespace+"command_calls_total", "Calls of each command.", []string{"command"}, labels),
		seconds: prometheus.NewDesc(namespace+"command_seconds_total",
			"Time of each command's calls, from the arrival of their batches to when all replies of these were ready.", []string{"command"}, labels),
	}
	for _, f := range families {
		var names []string
		if f.label != "" {
			names = []string{f.label}
		}
		c.families = append(c.families, prometheus.NewDesc(namespace+f.name, f.help, names, labels))
	}
	return c
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.families {
		to <- d
	}
	to <- c.latency
	to <- c.calls
	to <- c.seconds
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
	buckets, n := make(map[float64]uint64), uint64(0)
	for i, count := range m.Latency.Counts {
		n += count
		if i < len(m.Latency.Counts)-1 { // the last one has no bound
			buckets[m.Latency.Bound(i).Seconds()] = n
		}
	}
	to <- prometheus.MustNewConstHistogram(c.latency, n, m.Latency.Sum.Seconds(), buckets)
	for _, of := range c.source.Commands() {
		to <- prometheus.MustNewConstMetric(c.calls, prometheus.CounterValue, float64(of.Calls), of.Name)
		to <- prometheus.MustNewConstMetric(c.seconds, prometheus.CounterValue, of.Took.Seconds(), of.Name)
	}
}
