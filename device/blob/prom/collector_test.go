package prom

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/device/blob"
)

type fixed blob.Status

func (f fixed) Status() blob.Status { return blob.Status(f) }

// sum returns the sum of all metrics.
func sum(t *testing.T, s blob.Status) (sum float64, families int) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(fixed(s), nil))
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		sum += f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
	}
	return sum, len(all)
}

// Each field of a status is one metric.
func TestAllFields(t *testing.T) {
	v := reflect.TypeFor[blob.Status]()
	for i := range v.NumField() {
		var s blob.Status
		field := reflect.ValueOf(&s).Elem().Field(i)
		switch field.Interface().(type) {
		case bool:
			field.SetBool(true)
		case int64, int:
			field.SetInt(1)
		case uint64:
			field.SetUint(1)
		case time.Time:
			field.Set(reflect.ValueOf(time.Unix(1, 0)))
		default:
			field.Set(reflect.ValueOf(errors.New("failed")))
		}
		if sum, families := sum(t, s); sum != 1 || families != v.NumField() {
			t.Errorf("with %s, %d metrics add up to %v, want %d and 1", v.Field(i).Name, families, sum, v.NumField())
		}
	}
}
