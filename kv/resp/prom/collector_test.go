package prom

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/redykv/redykv/kv/resp"
)

// fixed is a source with constant metrics.
type fixed struct{ metrics resp.Metrics }

func (f fixed) Metrics() resp.Metrics { return f.metrics }

func (fixed) Commands() []resp.CommandMetrics {
	return []resp.CommandMetrics{{Name: "config|get", Calls: 3, Took: 90 * time.Second}}
}

// scrape returns the lines that Prometheus would read.
func scrape(t *testing.T, m resp.Metrics) []string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(NewCollector(fixed{m}, prometheus.Labels{"server": "s"})); err != nil {
		t.Fatal(err)
	}
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range all {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Split(b.String(), "\n")
}

// TestEveryNumber: a change of any number of Metrics changes exactly one sample.
func TestEveryNumber(t *testing.T) {
	var m resp.Metrics
	before := scrape(t, m)
	v := reflect.ValueOf(&m).Elem()
	for i := range v.NumField() {
		field, n := v.Field(i), 1000+i
		switch field.Kind() {
		case reflect.Int, reflect.Int64:
			field.SetInt(int64(n))
		case reflect.Uint64:
			field.SetUint(uint64(n))
		default:
			if v.Type().Field(i).Name != "Latency" {
				t.Errorf("%s is not looked at", v.Type().Field(i).Name)
			}
			continue
		}
		var changed []string
		for j, line := range scrape(t, m) {
			if line != before[j] {
				changed = append(changed, line)
			}
		}
		if len(changed) != 1 || !strings.HasSuffix(changed[0], fmt.Sprintf(" %d", n)) {
			t.Errorf("%s = %d changed %q", v.Type().Field(i).Name, n, changed)
		}
		field.SetZero()
	}
}

func TestLatency(t *testing.T) {
	var m resp.Metrics
	m.Latency.Counts[0], m.Latency.Counts[3], m.Latency.Counts[len(m.Latency.Counts)-1] = 1, 2, 4
	m.Latency.Sum = 90 * time.Second
	text := strings.Join(scrape(t, m), "\n")
	for _, want := range []string{
		`batch_seconds_bucket{server="s",le="1e-06"} 1`, `batch_seconds_bucket{server="s",le="4e-06"} 1`, `batch_seconds_bucket{server="s",le="8e-06"} 3`,
		`batch_seconds_bucket{server="s",le="+Inf"} 7`, `batch_seconds_sum{server="s"} 90`, `batch_seconds_count{server="s"} 7`,
		`command_calls_total{command="config|get",server="s"} 3`, `command_seconds_total{command="config|get",server="s"} 90`,
	} {
		if !strings.Contains(text, "redykv_server_"+want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// TestConventions checks names and help texts with Prometheus's linter.
func TestConventions(t *testing.T) {
	problems, err := testutil.CollectAndLint(NewCollector(fixed{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
