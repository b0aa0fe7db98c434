// Package flat has metrics as numbers by name, for those who show them without a query language.
package flat

import (
	"cmp"
	"iter"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// Numbers are metrics at one time. A key is the metric's name and its label values, in the order
// of the labels' names, separated by slashes: redykv_operations_total/read.
type Numbers struct {
	Values     map[string]float64  // of counters and gauges
	Histograms map[string][]Bucket // ascending; the last bound is infinite
}

// Bucket is a bucket of a cumulative histogram: Count values are at most Bound.
type Bucket struct{ Bound, Count float64 }

// Of returns the numbers of families of metrics.
func Of(families iter.Seq[*dto.MetricFamily]) Numbers {
	n := Numbers{Values: make(map[string]float64), Histograms: make(map[string][]Bucket)}
	for f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() { // sorted by name
				key += "/" + l.GetValue()
			}
			switch {
			case m.GetCounter() != nil:
				n.Values[key] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				n.Values[key] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				n.Histograms[key] = buckets(m.GetHistogram())
			}
		}
	}
	return n
}

func buckets(h *dto.Histogram) (all []Bucket) {
	for _, b := range h.GetBucket() {
		all = append(all, Bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
	}
	slices.SortFunc(all, func(a, b Bucket) int { return cmp.Compare(a.Bound, b.Bound) })
	if len(all) == 0 || !math.IsInf(all[len(all)-1].Bound, 1) {
		all = append(all, Bucket{math.Inf(1), float64(h.GetSampleCount())})
	}
	return all
}
