package main

import (
	"strings"
	"testing"

	modelbench "github.com/redykv/redykv/internal/bench/model"
)

// TestKeptEnough checks that a row meets its SLO if both latency and throughput do, and that
// --min-kept is the least number of such rows.
func TestKeptEnough(t *testing.T) {
	report := &modelbench.CheckReport{Rows: []modelbench.CheckRow{
		{SLOLatencyUs: 10, SLOMops: 1, MeasuredLatencyUs: 9, MeasuredMops: 1.1},
		{SLOLatencyUs: 10, SLOMops: 1, MeasuredLatencyUs: 11, MeasuredMops: 1.1},
		{SLOLatencyUs: 10, SLOMops: 1, MeasuredLatencyUs: 9, MeasuredMops: 0.5},
	}}
	for least, want := range []string{"", "", "1 of 3 SLOs were met, fewer than --min-kept 2"} {
		f := sloCheckFlags{minKept: least}
		if err := f.keptEnough(report); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("at least %d: %v", least, err)
		}
	}
}
