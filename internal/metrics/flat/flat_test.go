package flat

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestOf(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total"}, []string{"who", "how"})
	counter.WithLabelValues("me", "often").Add(7)
	times := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{1, 2}})
	times.Observe(0.5)
	times.Observe(3)
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "level"})
	gauge.Set(-1)
	registry.MustRegister(counter, times, gauge)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := Numbers{
		Values:     map[string]float64{"calls_total/often/me": 7, "level": -1},
		Histograms: map[string][]Bucket{"seconds": {{1, 1}, {2, 1}, {math.Inf(1), 2}}},
	}
	if got := Of(slices.Values(families)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
