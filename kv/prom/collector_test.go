package prom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// fixed is a source with constant metrics.
type fixed kv.Metrics

func (f fixed) Metrics() kv.Metrics { return kv.Metrics(f) }

// scrape returns the text that Prometheus would read.
func scrape(t *testing.T, source Source) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(NewCollector(source, prometheus.Labels{"store": "s"})); err != nil {
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
	return b.String()
}

// numbers calls visit with the path of each number in a struct, and a function that sets it.
func numbers(v reflect.Value, path string, visit func(path string, set func(n int))) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			visit(path, func(n int) {
				at := time.Time{}
				if n != 0 {
					at = time.Unix(int64(n), 0)
				}
				v.Set(reflect.ValueOf(at))
			})
			return
		}
		for i := range v.NumField() {
			numbers(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			numbers(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Uint64:
		visit(path, func(n int) { v.SetUint(uint64(n)) })
	case reflect.Int, reflect.Int64:
		if v.Type() == reflect.TypeFor[time.Duration]() {
			visit(path, func(n int) { v.SetInt(int64(n) * int64(time.Second)) })
			return
		}
		visit(path, func(n int) { v.SetInt(int64(n)) })
	case reflect.Float64:
		visit(path, func(n int) { v.SetFloat(float64(n)) })
	case reflect.Bool:
		visit(path, func(n int) { v.SetBool(n != 0) })
	}
}

// TestEveryNumber changes each number of Metrics in turn: the table must change, and exactly
// one sample of a collector.
func TestEveryNumber(t *testing.T) {
	m := kv.Metrics{Device: kv.DeviceMetrics{Tiers: make([]device.TierMetrics, 2)}}
	m.Device.Tiers[1].Reason = errors.New("broken")
	table, text := m.String(), scrape(t, fixed(m))
	n := 1000
	numbers(reflect.ValueOf(&m).Elem(), "Metrics", func(path string, set func(int)) {
		n++
		set(n)
		if m.String() == table {
			t.Errorf("%s is not in the table", path)
		}
		now := scrape(t, fixed(m))
		var changed []string
		before := strings.Split(text, "\n")
		for i, line := range strings.Split(now, "\n") {
			if line != before[i] {
				changed = append(changed, line)
			}
		}
		want := fmt.Sprintf(" %d", n)
		switch path {
		case "Metrics.Device.Tiers[0].Healthy", "Metrics.Device.Tiers[1].Healthy", "Metrics.Log.FlushWaiting":
			want = " 1"
		}
		if len(changed) != 1 || !strings.HasSuffix(changed[0], want) {
			t.Errorf("%s = %d changed %q", path, n, changed)
		}
		set(0)
	})
	if n < 1050 {
		t.Errorf("only %d numbers", n-1000)
	}
}

// TestConventions checks names and help texts with Prometheus's linter.
func TestConventions(t *testing.T) {
	problems, err := testutil.CollectAndLint(NewCollector(fixed{Device: kv.DeviceMetrics{Tiers: make([]device.TierMetrics, 1)}}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestStore collects from a working store, and again after it is closed.
func TestStore(t *testing.T) {
	st, err := kv.Open(kv.Options{Device: device.NewTiered(device.NewMemory(), device.NewMemory()), Records: 100})
	if err != nil {
		t.Fatal(err)
	}
	for n := range byte(3) {
		if err := st.Upsert(context.Background(), []byte{n}, []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	c := NewCollector(st, nil)
	for range 2 {
		err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP redykv_operations_total Operations that were begun, by kind.
# TYPE redykv_operations_total counter
redykv_operations_total{kind="delete"} 0
redykv_operations_total{kind="insert"} 0
redykv_operations_total{kind="read"} 0
redykv_operations_total{kind="rmw"} 0
redykv_operations_total{kind="upsert"} 3
# HELP redykv_tier_healthy Whether the tier is in the set: 1 or 0.
# TYPE redykv_tier_healthy gauge
redykv_tier_healthy{name="device.Memory",tier="0"} 1
redykv_tier_healthy{name="device.Memory",tier="1"} 1
`), "redykv_operations_total", "redykv_tier_healthy")
		if err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
