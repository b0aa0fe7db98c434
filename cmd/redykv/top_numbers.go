package main

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// numbers are what a server has said of itself at one moment.
type numbers struct {
	at      time.Time
	ready   string
	values  map[string]float64 // by name, and values of labels by their names, between slashes
	latency []bucket           // of batches
}

// bucket is how many were not above a bound, all smaller ones included.
type bucket struct{ bound, count float64 }

// parseNumbers reads what Prometheus is offered.
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
			for _, l := range m.GetLabel() { // which are sorted
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
	slices.SortFunc(n.latency, func(a, b bucket) int {
		if a.bound < b.bound {
			return -1
		}
		return 1
	})
	return n, nil
}

func (n *numbers) get(key string) float64 { return n.values["redykv_"+key] }

// named are the labels' values of all that begins with a name, sorted.
func (n *numbers) named(name string) (labels []string) {
	for key := range n.values {
		if label, ok := strings.CutPrefix(key, "redykv_"+name+"/"); ok {
			labels = append(labels, label)
		}
	}
	slices.Sort(labels)
	return labels
}

// change is what happened between two moments.
type change struct{ before, now *numbers }

func (c change) seconds() float64 { return c.now.at.Sub(c.before.at).Seconds() }

// of is by how much a number has grown; that of a server that was started anew has
// grown from 0.
func (c change) of(key string) float64 {
	grown := c.now.get(key) - c.before.get(key)
	if grown < 0 {
		return c.now.get(key)
	}
	return grown
}

// rate is that in a second.
func (c change) rate(key string) float64 { return c.of(key) / c.seconds() }

// quantile is a bound of the latencies that so great a share of the batches had; not
// a number if there were none.
func (c change) quantile(share float64) float64 {
	grown := make([]float64, len(c.now.latency))
	for i, b := range c.now.latency {
		grown[i] = b.count
		if i < len(c.before.latency) && len(c.before.latency) == len(c.now.latency) {
			grown[i] -= c.before.latency[i].count
		}
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
