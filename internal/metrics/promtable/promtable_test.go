package promtable

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// snapshot is what the table counts.
type snapshot struct {
	red, blue int
	took      time.Duration
}

// pots collects several snapshots.
type pots struct {
	Table[snapshot]
	each map[string]snapshot
}

func (p pots) Collect(to chan<- prometheus.Metric) {
	for name, s := range p.each {
		p.Table.Collect(to, &s, name)
	}
}

// TestTable checks that a snapshot's label comes before a family's, and that all samples have
// the constant one.
func TestTable(t *testing.T) {
	p := pots{New("test_", prometheus.Labels{"house": "h"}, []Family[snapshot]{
		Counter("drops_total", "Drops.", By("colour",
			Of("red", func(s *snapshot) int { return s.red }),
			Of("blue", func(s *snapshot) int { return s.blue }),
		)),
		Gauge("stirred_seconds", "Time.", Seconds(func(s *snapshot) time.Duration { return s.took })),
	}, "pot"), map[string]snapshot{"large": {1, 2, time.Minute}, "small": {3, 4, time.Second}}}
	if err := testutil.CollectAndCompare(p, strings.NewReader(`
# HELP test_drops_total Drops.
# TYPE test_drops_total counter
test_drops_total{colour="blue",house="h",pot="large"} 2
test_drops_total{colour="red",house="h",pot="large"} 1
test_drops_total{colour="blue",house="h",pot="small"} 4
test_drops_total{colour="red",house="h",pot="small"} 3
# HELP test_stirred_seconds Time.
# TYPE test_stirred_seconds gauge
test_stirred_seconds{house="h",pot="large"} 60
test_stirred_seconds{house="h",pot="small"} 1
`)); err != nil {
		t.Error(err)
	}
}

// TestFlags checks booleans and times, in a collector of the table alone.
func TestFlags(t *testing.T) {
	type state struct {
		on, off     bool
		never, once time.Time
	}
	c := New("test_", nil, []Family[state]{
		Gauge("on", "On.", Bool(func(s *state) bool { return s.on })),
		Gauge("off", "Off.", Bool(func(s *state) bool { return s.off })),
		Gauge("never", "Never.", Time(func(s *state) time.Time { return s.never })),
		Gauge("once", "Once.", Time(func(s *state) time.Time { return s.once })),
	}).Collector(func() state { return state{on: true, once: time.Unix(3, 5e8)} })
	if err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP test_never Never.
# TYPE test_never gauge
test_never 0
# HELP test_off Off.
# TYPE test_off gauge
test_off 0
# HELP test_on On.
# TYPE test_on gauge
test_on 1
# HELP test_once Once.
# TYPE test_once gauge
test_once 3.5
`)); err != nil {
		t.Error(err)
	}
}
