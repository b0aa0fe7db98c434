package main

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/redykv/redykv/internal/metrics/flat"
)

// numbers are the metrics of a server, or of a manager, at one time.
type numbers struct {
	at    time.Time
	ready string // of a server
	flat.Numbers
}

// parseNumbers parses Prometheus's text format.
func parseNumbers(text string) (*numbers, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	return &numbers{Numbers: flat.Of(maps.Values(families))}, nil
}

func (n *numbers) get(key string) float64 { return n.Values["redykv_"+key] }

// named returns the label values of all metrics of a name, sorted.
func (n *numbers) named(name string) []string { return labelsOf(n.Values, name) }

func labelsOf[V any](metrics map[string]V, name string) (labels []string) {
	for key := range metrics {
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

// grown returns how a histogram has grown, and the number of its new values.
func (c change) grown(key string) (grown []flat.Bucket, values float64) {
	now, before := c.now.Histograms["redykv_"+key], c.before.Histograms["redykv_"+key]
	if n := len(now); len(before) != n || n > 0 && before[n-1].Count > now[n-1].Count {
		before = make([]flat.Bucket, n) // the server was restarted, and counts from 0
	}
	for i, b := range now {
		grown = append(grown, flat.Bucket{Bound: b.Bound, Count: b.Count - before[i].Count})
		values = grown[i].Count
	}
	return grown, values
}

// quantile returns the upper bound of the bucket of a histogram in which the quantile of its new
// values lies; NaN if there are none.
func (c change) quantile(key string, share float64) float64 {
	grown, values := c.grown(key)
	if values <= 0 {
		return math.NaN()
	}
	for _, b := range grown {
		if b.Count >= share*values {
			return b.Bound
		}
	}
	return math.Inf(1)
}
