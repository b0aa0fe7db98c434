package paper

import (
	"strings"
	"testing"
)

// moved returns measurements of the load of figure 15 or 16 while one, two and four regions
// move: the metrics of the two loops, the same for all.
func moved(f Figure, optimised string, open, closed map[string]float64) *Data {
	var all []Measurement
	for _, moving := range []float64{1, 2, 4} {
		for series, values := range map[string]map[string]float64{optimised: open, closedSeries(optimised): closed} {
			all = append(all, Measurement{Trial: f.Trial, Series: series, X: moving, Round: 1, Values: values})
		}
	}
	return NewData(all)
}

// Figures 15 and 16 judge the closed loop by the paper's number too: an open loop that offers
// little loses nothing in a move that costs a busy client a fifth.
func TestMovesAreJudgedUnderBothLoads(t *testing.T) {
	well := map[string]float64{
		"during_of_before": 1, "during_of_beside": 1, "drop_percent": 0, "drop_beside_percent": 0, "beside_of_before": 1, "cpu_before": 1, "cpu_during": 1,
		"p99_before_us": 10, "p99_during_us": 11, "p99_beside_us": 10,
	}
	with := func(changes map[string]float64) map[string]float64 {
		all := make(map[string]float64)
		for _, some := range []map[string]float64{well, changes} {
			for name, v := range some {
				all[name] = v
			}
		}
		return all
	}
	slow := with(map[string]float64{"during_of_before": 0.8, "during_of_beside": 0.8, "drop_percent": 20, "drop_beside_percent": 20})
	waits := with(map[string]float64{"p99_during_us": 30, "p99_beside_us": 20})
	for _, c := range []struct {
		name, figure, series string
		open, closed         map[string]float64
		fails                []string // beginnings of the claims that fail
		reason               string
	}{
		{"reads that lose nothing", "fig15", unpaused, well, well, nil, ""},
		{"reads at full speed that do", "fig15", unpaused, well, slow, []string{"in a closed loop: the least", "in a closed loop: and"}, "not known"},
		{"offered reads that do", "fig15", unpaused, slow, well, []string{"unpaused reads", "and of that"}, "not known"},
		{"offered reads that wait", "fig15", unpaused, waits, well, []string{"nor is their 99th percentile"}, "the same load's was 2.0 times"},
		{"writes that lose nothing", "fig16", pausing, well, well, nil, ""},
		{"writes at full speed that do", "fig16", pausing, well, slow, []string{"in a closed loop: the largest", "in a closed loop, of"}, "not known"},
		// With one region held at a time this is a seventh whatever the program does.
		{"offered writes that do", "fig16", pausing, slow, well, nil, ""},
	} {
		figures, err := Choose([]string{c.figure})
		if err != nil {
			t.Fatal(err)
		}
		var failed []Verdict
		for _, v := range Judge(figures[0], moved(figures[0], c.series, c.open, c.closed), nil) {
			if v.Outcome == Fails {
				failed = append(failed, v)
			}
		}
		if len(failed) != len(c.fails) {
			t.Errorf("%s: %+v", c.name, failed)
			continue
		}
		for i, v := range failed {
			if !strings.HasPrefix(v.Claim, c.fails[i]) || !strings.Contains(v.Reason, c.reason) {
				t.Errorf("%s: %s: %s", c.name, v.Claim, v.Reason)
			}
		}
	}
}
