package paper

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// sample has two series at two points in three rounds; the last of b is missing at 2.
func sample() *Data {
	var all []Measurement
	add := func(series string, x float64, values ...float64) {
		for i, v := range values {
			all = append(all, Measurement{Trial: "t", Turn: "x", Series: series, X: x, Round: i + 1, Values: map[string]float64{"mops": v}})
		}
	}
	add("a", 1, 10, 12, 30)
	add("a", 2, 20, 18, 45)
	add("b", 1, 1, 2, 3)
	add("b", 2, 4, 6)
	return NewData(all)
}

// R91: the value of a figure is the median of its rounds, each computed separately.
func TestQuantities(t *testing.T) {
	a := func(x float64) At { return At{Series: "a", X: x, Metric: "mops"} }
	b := func(x float64) At { return At{Series: "b", X: x, Metric: "mops"} }
	for _, c := range []struct {
		name string
		q    Quantity
		want Value
	}{
		{"at", a(1), Value{12, 10, 30, 3}},
		{"ratio round by round", Ratio{a(1), b(1)}, Value{10, 6, 10, 3}},
		{"ratio of rounds that both have", Ratio{a(2), b(2)}, Value{4, 3, 5, 2}},
		{"loss", Loss{From: a(1), Of: b(1)}, Value{90, 100 * (1 - 2.0/12), 90, 3}},
		{"minus", Minus{a(1), b(1)}, Value{10, 9, 27, 3}},
		{"gap", Gap{a(1), a(1)}, Value{0, 0, 0, 3}},
		{"least", Least{a(1), b(1)}, Value{2, 1, 3, 3}},
		{"most", Most{a(1), b(1)}, Value{12, 10, 30, 3}},
		{"rise", Rise{"a", "mops", 2}, Value{1.5, 1.5, 2, 3}},
		{"quantile over all", Quantile{"a", "mops", 0.5}, Value{20, 20, 20, 1}},
		{"mean over all", Mean{"a", "mops"}, Value{22.5, 22.5, 22.5, 1}},
		{"one number with rounds", Ratio{a(1), Quantile{"b", "mops", 0}}, Value{12, 10, 30, 3}},
		{"another trial", At{Trial: "t", Series: "b", X: 1, Metric: "mops"}, Value{2, 1, 3, 3}},
	} {
		r, err := c.q.in(sample(), "t")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := Rounds(slices.Collect(maps.Values(r))); !close(got.Median, c.want.Median) || !close(got.Least, c.want.Least) || !close(got.Most, c.want.Most) || got.Rounds != c.want.Rounds {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	for name, q := range map[string]Quantity{
		"no such series": At{Series: "c", X: 1, Metric: "mops"},
		"no such point":  Ratio{a(3), b(1)},
		"no such metric": At{Series: "a", X: 1, Metric: "p50_us"},
		"one is missing": Least{a(1), b(7)},
		"a single point": Rise{"c", "mops", 2},
		"nothing":        Mean{"c", "mops"},
	} {
		if r, err := q.in(sample(), "t"); err == nil || !strings.Contains(err.Error(), "not measured") {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

func close(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

func TestJudge(t *testing.T) {
	a := At{Series: "a", X: 1, Metric: "mops"}
	f := Figure{Name: "f", Trial: "t", Claims: []Claim{
		{Text: "a number to look at", Paper: 6, Ours: a},
		{Text: "holds", Ours: a, Holds: AtLeast(9)},
		{Text: "holds, but not in all rounds", Ours: a, Holds: AtLeast(11)},
		{Text: "fails", Ours: a, Holds: AtMost(9), Because: "so it is"},
		{Text: "fails without a cause", Ours: a, Holds: Between(1, 2)},
		{Text: "is missing", Ours: At{Series: "smb", X: 1, Metric: "mops"}, Holds: AtLeast(1)},
	}}
	got := Judge(f, sample(), []LeftOut{{"t", "smb", "no server"}, {"other", "all", "no reason"}})
	if v := got[0]; v.Holds != nil || v.Ratio == nil || *v.Ratio != 2 || *v.Ours != 12 || *v.Least != 10 || *v.Most != 30 {
		t.Errorf("%+v", v)
	}
	if v := got[1]; v.Holds == nil || !*v.Holds || v.Warning != "" || v.Reason != "" || v.Bound != "at least 9" {
		t.Errorf("%+v", v)
	}
	if v := got[2]; !*v.Holds || !strings.Contains(v.Warning, "10 to 30") {
		t.Errorf("%+v", v)
	}
	if v := got[3]; *v.Holds || v.Reason != "so it is" || v.Warning != "" {
		t.Errorf("%+v", v)
	}
	if v := got[4]; *v.Holds || v.Reason == "" {
		t.Errorf("%+v", v)
	}
	if v := got[5]; v.Holds != nil || v.Ours != nil || !strings.HasPrefix(v.Reason, "not measured") || !strings.HasSuffix(v.Reason, "smb: no server") {
		t.Errorf("%+v", v)
	}
}

// A figure has changed if the ranges of its rounds do not overlap and the medians differ.
func TestDiff(t *testing.T) {
	run := func(values ...float64) *Data {
		var all []Measurement
		for i, v := range values {
			all = append(all, Measurement{Trial: "fig18a", Series: "redy", X: 1, Round: i + 1, Values: map[string]float64{"mops": v}})
		}
		return NewData(all)
	}
	for _, c := range []struct {
		name        string
		was, is     *Data
		changes     int
		comparisons int
	}{
		{"faster", run(1, 1.1), run(2, 2.2), 1, 1},
		{"within the rounds", run(1, 2), run(1.9, 3), 0, 1},
		{"apart, but hardly", run(1, 1.001), run(1.01, 1.02), 0, 1},
		{"single rounds", run(1), run(2), 0, 0},
		{"nothing", run(), run(1, 2), 0, 0},
	} {
		d := Diff(Head{}, Head{}, c.was, c.is)
		if len(d.Changes) != c.changes || d.Compared != c.comparisons {
			t.Errorf("%s: %+v", c.name, d)
		}
		if only := c.name == "nothing"; only != slices.Equal(d.OnlyAfter, []string{"fig18a"}) || len(d.OnlyBefore) > 0 {
			t.Errorf("%s: only before %q, only after %q", c.name, d.OnlyBefore, d.OnlyAfter)
		}
	}
	var one strings.Builder
	if err := Diff(Head{}, Head{}, run(1), run()).Write(&one); err != nil || !strings.Contains(one.String(), "measured before only: fig18a\nno point was measured in both") {
		t.Errorf("%v\n%s", err, one.String())
	}
	d := Diff(Head{Machine: "one"}, Head{Machine: "two"}, run(0.5, 0.5), run(1, 1))
	var text strings.Builder
	if err := d.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not alike: machine: one, then two", "1 of 1 figures changed", "2.00x", "one thread on Redy: did not hold before (0.5), held now (1)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}
