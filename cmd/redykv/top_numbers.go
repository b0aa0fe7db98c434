package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// numbers are a server's metrics at one time.
type numbers struct {
	at      time.Time
	ready   string
	values  map[string]float64 // by metric name and label values, separated by slashes
	latency []bucket           // histogram of batches
}

// bucket is a bucket of a cumulative histogram: count values are at most bound.
type bucket struct{ bound, count float64 }

// parseNumbers parses Prometheus's text format.
func parseNumbers(text string) (*numbers, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	n := &numbers{values: make(map[string]float64)}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() { // sorted by name
				key += "/" + l.GetValue()
			}
			switch {
			case m.GetCounter() != nil:
				n.values[key] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				n.values[key] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil && name == "redykv_server_batch_seconds":
				for _, b := range m.GetHistogram().GetBucket() {
					n.latency = append(n.latency, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
				}
			}
		}
	}
	slices.SortFunc(n.latency, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	return n, nil
}

func (n *numbers) get(key string) float64 { return n.values["redykv_"+key] }

// named returns the label values of all metrics of a name, sorted.
func (n *numbers) named(name string) (labels []string) {
	for key := range n.values {
		if label, ok := strings.CutPrefix(key, "redykv_"+name+"/"); ok {
			labels = append(labels, label)
		}
	}
	slices.Sort(labels)
	return labels
}

// change is the change between two scrapes.
type change struct{ before, now *numbers }

func (c change) seconds() float64 { return c.now.at.Sub(c.before.at).Seconds() }

// of returns the growth of a counter. After a restart of the server it counts from 0.
func (c change) of(key string) float64 {
	grown := c.now.get(key) - c.before.get(key)
	if grown < 0 {
		return c.now.get(key)
	}
	return grown
}

// rate returns the growth per second.
func (c change) rate(key string) float64 { return c.of(key) / c.seconds() }

// quantile returns the upper bound of the bucket in which the quantile of the batches'
// latencies lies; NaN without batches.
func (c change) quantile(share float64) float64 {
	grown := make([]float64, len(c.now.latency))
	before := c.before.latency
	if n := len(grown); len(before) != n || n > 0 && before[n-1].count > c.now.latency[n-1].count {
		before = make([]bucket, n) // the server was restarted, and counts from 0
	}
	for i, b := range c.now.latency {
		grown[i] = b.count - before[i].count
	}
	if len(grown) == 0 || grown[len(grown)-1] <= 0 {
		return math.NaN()
	}
	for i, count := range grown {
		if count >= share*grown[len(grown)-1] {
			return c.now.latency[i].bound
		}
	}
	return math.Inf(1)
}
