// Package promtable offers a snapshot of numbers to Prometheus by a table: each of its
// rows is a metric's name, and how its samples follow from the snapshot.
package promtable

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Family is one name, with its samples of a snapshot M.
type Family[M any] struct {
	name, help string
	kind       prometheus.ValueType
	samples    Samples[M]
}

// Counter is a family of counters.
func Counter[M any](name, help string, samples Samples[M]) Family[M] {
	return Family[M]{name, help, prometheus.CounterValue, samples}
}

// Gauge is a family of gauges.
func Gauge[M any](name, help string, samples Samples[M]) Family[M] {
	return Family[M]{name, help, prometheus.GaugeValue, samples}
}

// Samples are those of one family: one for each value of its label, or without a label
// one.
type Samples[M any] struct {
	label string
	each  []Sample[M]
}

// Sample is one number of a snapshot.
type Sample[M any] struct {
	label string // the label's value
	value func(m *M) float64
}

// Number is one sample without a label.
func Number[M any, N int | int64 | uint64 | float64](get func(m *M) N) Samples[M] {
	return By("", Of("", get))
}

// Seconds is one sample without a label, of a duration.
func Seconds[M any](get func(m *M) time.Duration) Samples[M] {
	return Number(func(m *M) float64 { return get(m).Seconds() })
}

// By has a sample for each value of a label.
func By[M any](label string, each ...Sample[M]) Samples[M] { return Samples[M]{label, each} }

// Of is the sample for one value of a label.
func Of[M any, N int | int64 | uint64 | float64](label string, get func(m *M) N) Sample[M] {
	return Sample[M]{label, func(m *M) float64 { return float64(get(m)) }}
}

// Table is what is collected of every snapshot. It does not change.
type Table[M any] struct {
	families []Family[M]
	descs    []*prometheus.Desc // in the order of families
}

// New returns a table of families whose names begin with namespace. All samples have the
// constant labels, which may be nil, and before their family's own label the labels by,
// which tell several snapshots of a scrape apart.
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

// Describe is the table's part of [prometheus.Collector.Describe].
func (t Table[M]) Describe(to chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		to <- d
	}
}

// Collect is the part of [prometheus.Collector.Collect] of one snapshot, with a value for
// each of the labels that New was given as by.
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
