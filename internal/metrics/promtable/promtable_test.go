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
