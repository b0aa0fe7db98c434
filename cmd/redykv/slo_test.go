package main

import (
	"strings"
	"testing"

	modelbench "github.com/redykv/redykv/internal/bench/model"
)

// TestKeptEnough checks that a row meets its SLO if both latency and throughput do, and that
// --min-kept is the least number of such rows, as a share of those that the manager is judged by.
func TestKeptEnough(t *testing.T) {
	report := &modelbench.CheckReport{Rows: []modelbench.CheckRow{
		{SLOLatencyUs: 10, SLOMops: 1, MeasuredLatencyUs: 9, MeasuredMops: 1.1},
		{SLOLatencyUs: 10, SLOMops: 1, MeasuredLatencyUs: 11, MeasuredMops: 1.1},
		{SLOLatencyUs: 10, SLOMops: 1, MeasuredLatencyUs: 9, MeasuredMops: 0.5},
	}}
	check := func(wants ...string) {
		t.Helper()
		for least, want := range wants {
			f := sloCheckFlags{minKept: least}
			if err := f.keptEnough(report); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("at least %d: %v, want %q", least, err, want)
			}
		}
	}
	check("", "", "1 of 3 SLOs were met, fewer than --min-kept 2 of 3")
	report.Rows[1].Reason = modelbench.ReasonMachine
	check("", "", "1 of 2 SLOs were met, fewer than --min-kept 2 of 3")
	report.Rows[2].Reason = modelbench.ReasonNeighbour
	check("", "the machine was disturbed during 2 of 3 SLOs")
}
