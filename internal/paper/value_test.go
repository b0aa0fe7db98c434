package paper

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/ycsb"
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
		{"quantile over all", Quantile{"a", "mops", 0.5}, Value{18, 18, 18, 1}},
		{"mean over all", Mean{"a", "mops"}, Value{22.5, 22.5, 22.5, 1}},
		{"one number with rounds", Ratio{a(1), Quantile{"b", "mops", 0}}, Value{12, 10, 30, 3}},
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
	missing := At{Series: "smb", X: 1, Metric: "mops"}
	idle := Minus{a, Quantile{"a", "mops", 0}} // 0 in the first round, 2 and 20
	f := Figure{Name: "f", Trial: "t", Claims: []Claim{
		{Text: "a number to look at", Paper: 6, Ours: a},
		{Text: "holds", Ours: a, Holds: AtLeast(9)},
		{Text: "holds, but not in all rounds", Ours: a, Holds: AtLeast(11)},
		{Text: "fails for reasons that were measured", Ours: a, Holds: AtMost(9), Causes: []Cause{
			{At{Series: "b", X: 1, Metric: "mops"}, AtMost(2), "b did %.1f"},
			{At{Series: "b", X: 2, Metric: "mops"}, AtMost(4), "b did %.1f at 2"},
			{missing, AtMost(4), "smb did %.1f"},
			{Ratio{a, Minus{a, a}}, AtLeast(4), "infinitely more: %g"},
			{At{Series: "a", X: 2, Metric: "mops"}, AtLeast(20), "a did %.0f at 2"},
		}},
		{Text: "fails for reasons that were not", Ours: a, Holds: Between(1, 2), Causes: []Cause{{missing, AtMost(1), "smb did %g"}, {a, AtMost(1), "a did %g"}}},
		{Text: "is missing", Ours: missing, Holds: AtLeast(1)},
		{Text: "compares with what is missing", Ours: Ratio{a, missing}, Holds: AtLeast(1)},
		{Text: "compares with nothing done", Ours: Ratio{a, Minus{a, a}}, Holds: AtLeast(1)}, // infinite
		{Text: "is a constant", Ours: a, Paper: 6, Constant: "twelve is twelve"},
		{Text: "is a constant that is missing", Ours: missing, Constant: "twelve is twelve"},
		{Text: "compares nothing with nothing", Ours: Ratio{Minus{a, a}, Minus{a, a}}, Holds: AtMost(1)}, // not a number
		{Text: "compares with nothing done in a round", Ours: Ratio{a, idle}, Paper: 6, Holds: AtLeast(1)},
		{Text: "reports nothing done", Ours: Ratio{a, Minus{a, a}}, Paper: 6},
	}}
	got := Judge(f, sample(), []LeftOut{{"t", "smb", "no server"}, {"other", "all", "no reason"}})
	if v := got[0]; v.Outcome != Reported || v.Ratio == nil || *v.Ratio != 2 || *v.Ours != 12 || *v.Least != 10 || *v.Most != 30 {
		t.Errorf("%+v", v)
	}
	if v := got[1]; v.Outcome != Holds || v.Warning != "" || v.Reason != "" || v.Bound != "at least 9" {
		t.Errorf("%+v", v)
	}
	if v := got[2]; v.Outcome != Holds || !strings.Contains(v.Warning, "10 to 30") {
		t.Errorf("%+v", v)
	}
	if v := got[3]; v.Outcome != Fails || v.Reason != "b did 2.0; a did 20 at 2" || v.Warning != "" {
		t.Errorf("%+v", v)
	}
	if v := got[4]; v.Outcome != Fails || v.Reason != "the cause is not known" {
		t.Errorf("%+v", v)
	}
	for _, v := range got[5:7] {
		if v.Outcome != Unmeasured || v.Ours != nil || v.Ratio != nil || v.Warning != "" || !strings.HasSuffix(v.Reason, "smb: no server") {
			t.Errorf("%+v", v)
		}
	}
	for _, v := range []Verdict{got[7], got[10]} {
		if v.Outcome != Fails || v.Ours != nil || v.Ratio != nil || v.Least != nil || v.Reason != "nothing was done in that time" {
			t.Errorf("%+v", v)
		}
	}
	if v := got[11]; v.Outcome != Fails || *v.Ours != 3.75 || *v.Least != 1.5 || *v.Most != 6 || v.Reason != "nothing was done in that time, in 1 of 3 rounds" {
		t.Errorf("%+v", v)
	}
	if v := got[12]; v.Outcome != Reported || v.Ours != nil || v.Reason != "nothing was done in that time" {
		t.Errorf("%+v", v)
	}
	if v := got[8]; v.Outcome != ByConstant || v.Reason != "twelve is twelve" || *v.Ours != 12 || *v.Ratio != 2 || v.Bound != "" {
		t.Errorf("%+v", v)
	}
	if v := got[9]; v.Outcome != Unmeasured {
		t.Errorf("%+v", v)
	}
	if text := Count(got).String(); text != "2 of 7 claims that were judged hold; not counted: 3 not measured, 1 given by constants, 2 without a bound" {
		t.Error(text)
	}
	for _, v := range got {
		line, err := json.Marshal(v)
		if err != nil || !strings.Contains(string(line), fmt.Sprintf(`"verdict":%q`, v.Outcome)) || (v.Ours == nil) != strings.Contains(string(line), `"ours":null`) {
			t.Errorf("%s, %v", line, err)
		}
	}
}

// hardlyFails says why a claim can hardly fail, or why its bounds are not founded; "" if neither
// is so.
func hardlyFails(f Figure, c Claim) string {
	var ends []float64
	for _, end := range []float64{c.Holds.Least, c.Holds.Most} {
		if !math.IsInf(end, 0) {
			ends = append(ends, end)
		}
	}
	near := func(number float64) bool {
		return !slices.ContainsFunc(ends, func(end float64) bool { return math.Abs(end-number) > 0.25*math.Abs(number)+1e-9 })
	}
	own := recorded[claimName{f.Name, c.Text}]
	switch {
	case c.Own && (own == worst{} || own.least != 0 && own.most != 0):
		return "no number is recorded, or two are"
	case c.Own && c.Paper != 0 && (own.least != 0 && own.least < c.Paper || own.most > c.Paper):
		return "the paper's number is better than what is recorded"
	case !c.Holds.some():
		return ""
	case c.Constant != "":
		return "a constant is judged"
	case c.Own && !near(own.least+own.most):
		return "the bound is not near the recorded number"
	case c.Own:
		return ""
	case c.Paper != 0 && !near(c.Paper):
		return "the bound is not near the paper's number"
	case c.Paper != 0:
		return ""
	}
	// The paper only says which of two is more.
	equal := 0.0
	if strings.HasPrefix(c.Unit, "times") {
		equal = 1
	}
	if c.Holds.Least < equal && c.Holds.Most > equal {
		return "it holds for less than what the paper says"
	}
	return ""
}

// Every bound is near the paper's number, or near this project's own where that is better, or it
// is the paper's statement itself.
func TestClaimsCanFail(t *testing.T) {
	var owned []claimName
	for _, f := range Figures() {
		for _, c := range f.Claims {
			if why := hardlyFails(f, c); why != "" {
				t.Errorf("%s: %s: %v: %s", f.Name, c.Text, c.Holds, why)
			}
			if c.Own {
				owned = append(owned, claimName{f.Name, c.Text})
			}
			for _, cause := range c.Causes {
				if !strings.Contains(cause.Text, "%") || !cause.By.some() {
					t.Errorf("%s: %s: a fixed text is given as a reason: %q", f.Name, c.Text, cause.Text)
				}
			}
		}
	}
	for name := range recorded {
		if !slices.Contains(owned, name) {
			t.Errorf("%v bounds no claim", name)
		}
	}
	figures, err := Choose([]string{"fig18a"})
	if err != nil {
		t.Fatal(err)
	}
	figure := figures[0]
	own := figure.Claims[slices.IndexFunc(figure.Claims, func(c Claim) bool { return c.Own })]
	least := recorded[claimName{figure.Name, own.Text}].least
	with := func(c Claim, change func(c *Claim)) Claim { change(&c); return c }
	for _, c := range []Claim{
		{Text: "a fifth of the paper's", Paper: 10, Holds: AtLeast(2)},
		{Text: "twice the paper's", Paper: 10, Holds: AtMost(20)},
		{Text: "far around it", Paper: 1, Holds: Between(0.9, 2)},
		{Text: "half as much is more", Unit: "times", Holds: AtLeast(0.5)},
		{Text: "less is more", Unit: "%", Holds: AtLeast(-1)},
		{Text: "a constant", Paper: 1, Holds: AtLeast(1), Constant: "the model"},
		{Text: "nothing is recorded", Own: true},
		with(own, func(c *Claim) { c.Holds = AtLeast(least / 2) }),
		with(own, func(c *Claim) { c.Paper = 2 * least }),
	} {
		if hardlyFails(figure, c) == "" {
			t.Errorf("%s: %v is sharp", c.Text, c.Holds)
		}
	}
	if hardlyFails(figure, own) != "" || own.Holds != nearOurs(least) {
		t.Errorf("%+v", own)
	}
}

// A figure has changed if the ranges of its rounds do not overlap and the medians differ.
func TestDiff(t *testing.T) {
	run := func(values ...float64) *Data {
		var all []Measurement
		for i, v := range values {
			all = append(all, Measurement{Trial: "small values", Series: seriesOf(ycsb.Redy, uniformStore), X: 1, Round: i + 1, Values: map[string]float64{"mops": v}})
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
		if only := c.name == "nothing"; only != slices.Equal(d.OnlyAfter, []string{"small values"}) || len(d.OnlyBefore) > 0 {
			t.Errorf("%s: only before %q, only after %q", c.name, d.OnlyBefore, d.OnlyAfter)
		}
	}
	var one strings.Builder
	if err := Diff(Head{}, Head{}, run(1), run()).Write(&one); err != nil || !strings.Contains(one.String(), "measured before only: small values\nno point was measured in both") {
		t.Errorf("%v\n%s", err, one.String())
	}
	// A claim that held fails if nothing is done.
	both := func(ssd float64) *Data {
		var all []Measurement
		for device, mops := range map[ycsb.Device]float64{ycsb.Redy: 4, ycsb.SSD: ssd} {
			all = append(all, Measurement{Trial: "small values", Series: seriesOf(device, uniformStore), X: 1, Round: 1, Values: map[string]float64{"mops": mops}})
		}
		return NewData(all)
	}
	one.Reset()
	if err := Diff(Head{}, Head{}, both(0.01), both(0)).Write(&one); err != nil || !strings.Contains(one.String(), "Redy over SSD: held before (400), did not hold now (nothing was done in that time)") {
		t.Errorf("%v\n%s", err, one.String())
	}
	d := Diff(Head{Machine: "one"}, Head{Machine: "two"}, run(0.5, 0.5), run(4, 4))
	var text strings.Builder
	if err := d.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not alike: machine: one, then two", "1 of 1 figures changed", "8.00x", "one thread on Redy: did not hold before (0.5), held now (4)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}
