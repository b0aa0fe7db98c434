package console

import (
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/redykv/redykv/internal/metrics/flat"
)

// Sample is what a process is at one time. Its JSON form is the answer of /console/state,
// apart from details.
type Sample struct {
	Kind    string `json:"kind"`    // of the process
	Version string `json:"version"` // of the program
	At      int64  `json:"at"`      // milliseconds of Unix time
	Status  string `json:"status"`  // in words
	// Values are counters and gauges by name and label values, as in package flat, without those
	// of the Go runtime.
	Values     map[string]float64   `json:"values"`
	Histograms map[string]Histogram `json:"histograms"`
}

// Histogram counts values: Counts[i] are at most Bounds[i], and the last of Counts are all.
type Histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []float64 `json:"counts"`
}

// shown says whether a metric is part of a sample.
func shown(key string) bool {
	return strings.HasPrefix(key, "redykv_") || key == "process_start_time_seconds" || key == "process_resident_memory_bytes"
}

// setNumbers sets the values and histograms. A number that JSON does not have is left out.
func (s *Sample) setNumbers(families []*dto.MetricFamily) {
	n := flat.Of(slices.Values(families))
	s.Values, s.Histograms = make(map[string]float64), make(map[string]Histogram)
	for key, v := range n.Values {
		if shown(key) && !math.IsNaN(v) && !math.IsInf(v, 0) {
			s.Values[key] = v
		}
	}
	for key, buckets := range n.Histograms {
		if !shown(key) {
			continue
		}
		var h Histogram
		for _, b := range buckets {
			h.Counts = append(h.Counts, b.Count)
			if !math.IsInf(b.Bound, 1) {
				h.Bounds = append(h.Bounds, b.Bound)
			}
		}
		s.Histograms[key] = h
	}
}
