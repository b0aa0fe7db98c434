// Package prom exports a server's metrics to Prometheus.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/internal/metrics/promtable"
	"github.com/redykv/redykv/kv/resp"
)

// Source is implemented by [resp.Server].
type Source interface {
	Metrics() resp.Metrics
	Commands() []resp.CommandMetrics
}

// collector reads its source once per scrape. Its fields do not change.
type collector struct {
	source  Source
	numbers promtable.Table[resp.Metrics]
	latency *prometheus.Desc
	// Per command that was called, or refused.
	calls, refused, seconds *prometheus.Desc
}

// namespace is the prefix of all names.
const namespace = "redykv_server_"

var families = []promtable.Family[resp.Metrics]{
	promtable.Gauge("clients", "Clients that are connected.",
		promtable.Number(func(m *resp.Metrics) int { return m.Clients })),
	promtable.Counter("connections_total", "Connections that were accepted.",
		promtable.Number(func(m *resp.Metrics) uint64 { return m.Connections })),
	promtable.Counter("disconnected_total", "Connections that the server ended, by reason.", promtable.By("reason",
		promtable.Of("rejected", func(m *resp.Metrics) uint64 { return m.Rejected }),
		promtable.Of("idle", func(m *resp.Metrics) uint64 { return m.Idle }),
		promtable.Of("slow", func(m *resp.Metrics) uint64 { return m.Slow }),
	)),
	promtable.Counter("commands_total", "Commands that were carried out or refused.",
		promtable.Number(func(m *resp.Metrics) uint64 { return m.Commands })),
	promtable.Counter("bytes_total", "Bytes received from clients and sent to them.", promtable.By("direction",
		promtable.Of("in", func(m *resp.Metrics) uint64 { return m.BytesIn }),
		promtable.Of("out", func(m *resp.Metrics) uint64 { return m.BytesOut }),
	)),
	promtable.Gauge("subscribed_names", "Channels and patterns that have subscribers, by kind.", promtable.By("kind",
		promtable.Of("channel", func(m *resp.Metrics) int { return m.Channels }),
		promtable.Of("pattern", func(m *resp.Metrics) int { return m.Patterns }),
		promtable.Of("shard_channel", func(m *resp.Metrics) int { return m.ShardChannels }),
	)),
	promtable.Counter("published_messages_total", "Messages that were published, keyspace notifications included.",
		promtable.Number(func(m *resp.Metrics) uint64 { return m.Published })),
	promtable.Counter("delivered_messages_total", "Messages to single subscribers, and to clients whose tracked keys have changed.",
		promtable.Number(func(m *resp.Metrics) uint64 { return m.Delivered })),
	promtable.Gauge("tracking_clients", "Clients that are told when keys change.",
		promtable.Number(func(m *resp.Metrics) int { return m.Tracking })),
	promtable.Gauge("tracked_keys", "Keys that such clients have read.",
		promtable.Number(func(m *resp.Metrics) int { return m.TrackedKeys })),
	promtable.Gauge("buffer_bytes", "Memory for commands that have not arrived whole and replies that have not been taken.", promtable.By("of",
		promtable.Of("requests", func(m *resp.Metrics) int64 { return m.RequestBytes }),
		promtable.Of("replies", func(m *resp.Metrics) int64 { return m.ReplyBytes }),
	)),
}

// NewCollector returns a collector for all numbers of [resp.Metrics] and the calls of each
// command. labels is added to all metrics and may be nil; it distinguishes servers in one
// process.
func NewCollector(source Source, labels prometheus.Labels) prometheus.Collector {
	return &collector{
		source:  source,
		numbers: promtable.New(namespace, labels, families),
		latency: prometheus.NewDesc(namespace+"batch_seconds",
			"Time from the arrival of a batch of commands to the moment when its replies are sent.", nil, labels),
		calls: prometheus.NewDesc(namespace+"command_calls_total", "Calls of each command.", []string{"command"}, labels),
		refused: prometheus.NewDesc(namespace+"command_refused_total",
			"Calls of each command that did not run, for their arguments, permissions or the server's state.", []string{"command"}, labels),
		seconds: prometheus.NewDesc(namespace+"command_seconds_total",
			"Time of each command's calls, from the arrival of their batches to the moment when the replies of these are sent.", []string{"command"}, labels),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	c.numbers.Describe(to)
	to <- c.latency
	to <- c.calls
	to <- c.refused
	to <- c.seconds
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	m := c.source.Metrics()
	c.numbers.Collect(to, &m)
	buckets, n := make(map[float64]uint64), uint64(0)
	for i, count := range m.Latency.Counts {
		n += count
		if i < len(m.Latency.Counts)-1 { // the last class has no bound
			buckets[m.Latency.Bound(i).Seconds()] = n
		}
	}
	to <- prometheus.MustNewConstHistogram(c.latency, n, m.Latency.Sum.Seconds(), buckets)
	for _, of := range c.source.Commands() {
		to <- prometheus.MustNewConstMetric(c.calls, prometheus.CounterValue, float64(of.Calls), of.Name)
		to <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(of.Refused), of.Name)
		to <- prometheus.MustNewConstMetric(c.seconds, prometheus.CounterValue, of.Took.Seconds(), of.Name)
	}
}
