// Package promtable collects Prometheus metrics from a snapshot of type M by a table: each
// row has a metric's name and the functions that read its samples from the snapshot.
package promtable

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Family is one metric of a snapshot M, with its samples.
type Family[M any] struct {
	name, help string
	kind       prometheus.ValueType
	samples    Samples[M]
}

// Counter returns a family of counters.
func Counter[M any](name, help string, samples Samples[M]) Family[M] {
	return Family[M]{name, help, prometheus.CounterValue, samples}
}

// Gauge returns a family of gauges.
func Gauge[M any](name, help string, samples Samples[M]) Family[M] {
	return Family[M]{name, help, prometheus.GaugeValue, samples}
}

// Samples are the samples of one family: one for each value of its label, or a single one
// without a label.
type Samples[M any] struct {
	label string
	each  []Sample[M]
}

// Sample is one number of a snapshot.
type Sample[M any] struct {
	label string // the label's value
	value func(m *M) float64
}

// Number returns one sample without a label.
func Number[M any, N int | int64 | uint64 | float64](get func(m *M) N) Samples[M] {
	return By("", Of("", get))
}

// Seconds returns one sample without a label, a duration in seconds.
func Seconds[M any](get func(m *M) time.Duration) Samples[M] {
	return Number(func(m *M) float64 { return get(m).Seconds() })
}

// Bool returns one sample without a label: 1 for true and 0 for false.
func Bool[M any](get func(m *M) bool) Samples[M] {
	return Number(func(m *M) int {
		if get(m) {
			return 1
		}
		return 0
	})
}

// Time returns one sample without a label, a time in seconds since 1970; 0 for the zero time.
func Time[M any](get func(m *M) time.Time) Samples[M] {
	return Number(func(m *M) float64 {
		t := get(m)
		if t.IsZero() {
			return 0
		}
		return float64(t.UnixNano()) / 1e9
	})
}

// By returns one sample for each value of a label.
func By[M any](label string, each ...Sample[M]) Samples[M] { return Samples[M]{label, each} }

// Of returns the sample for one value of a label.
func Of[M any, N int | int64 | uint64 | float64](label string, get func(m *M) N) Sample[M] {
	return Sample[M]{label, func(m *M) float64 { return float64(get(m)) }}
}

// Table has the families collected from every snapshot. It is immutable.
type Table[M any] struct {
	families []Family[M]
	descs    []*prometheus.Desc // in the order of families
}

// New returns a table of families whose names begin with namespace. All samples have the
// constant labels, which may be nil. The labels by distinguish several snapshots of one scrape
// and come before a family's own label.
func New[M any](namespace string, constant prometheus.Labels, families []Family[M], by ...string) Table[M] {
	t := Table[M]{families: families}
	for _, f := range families {
		names := slices.Clone(by)
		if f.samples.label != "" {
			names = append(names, f.samples.label)
		}
		t.descs = append(t.descs, prometheus.NewDesc(namespace+f.name, f.help, names, constant))
	}
	return t
}

// Describe implements the table's part of [prometheus.Collector.Describe].
func (t Table[M]) Describe(to chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		to <- d
	}
}

// Collect implements the part of [prometheus.Collector.Collect] for one snapshot. by has the
// values of the labels passed to New as by.
func (t Table[M]) Collect(to chan<- prometheus.Metric, m *M, by ...string) {
	for i, f := range t.families {
		for _, s := range f.samples.each {
			values := slices.Clone(by)
			if f.samples.label != "" {
				values = append(values, s.label)
			}
			to <- prometheus.MustNewConstMetric(t.descs[i], f.kind, s.value(m), values...)
		}
	}
}

// collector collects one table.
type collector[M any] struct {
	Table[M]
	read func() M
}

// Collector returns a collector of the table alone. It calls read once for each scrape.
func (t Table[M]) Collector(read func() M) prometheus.Collector { return collector[M]{t, read} }

// Collect implements [prometheus.Collector].
func (c collector[M]) Collect(to chan<- prometheus.Metric) {
	m := c.read()
	c.Table.Collect(to, &m)
}
