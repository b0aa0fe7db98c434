package plot

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

func TestAxis(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		axis                Axis
		least, most         float64
		wantLeast, wantMost float64
		majors              string // of logarithmic axes
	}{
		{Axis{}, 3, 9.2, 0, 9.2, ""},
		{Axis{}, -3, 6, -3, 6, ""},
		{Axis{}, inf, -inf, 0, 0, ""},
		{Axis{Log: true}, 0.03, 4, 0.01, 10, "0.01 0.1 1 10"},
		{Axis{Log: true}, 5, 5, 1, 10, "1 10"},
		{Axis{Log: true}, 10, 10, 10, 100, "10 100"},
		{Axis{Log: true}, inf, -inf, 0, 0, ""},
	} {
		a := plot.New().X
		a.Min, a.Max = c.least, c.most
		c.axis.set(&a)
		if math.Abs(a.Min-c.wantLeast) > 0.002*math.Abs(c.wantLeast) || math.Abs(a.Max-c.wantMost) > 0.002*c.wantMost {
			t.Errorf("%+v of %v to %v: %v to %v", c.axis, c.least, c.most, a.Min, a.Max)
		}
		if c.majors == "" {
			continue
		}
		var majors []string
		for _, tick := range a.Tick.Marker.Ticks(a.Min, a.Max) {
			if !tick.IsMinor() && tick.Value >= a.Min && tick.Value <= 1.01*a.Max {
				majors = append(majors, tick.Label)
			}
		}
		if got := strings.Join(majors, " "); got != c.majors {
			t.Errorf("%+v of %v to %v: ticks %s, want %s", c.axis, c.least, c.most, got, c.majors)
		}
	}
	for v, want := range map[float64]string{0: "0", 12.345: "12.3", 0.05: "0.05", 1234.5: "1235", 2.5e6: "2.5 M", 1.0004: "1", -0.25: "-0.25", 0.00012: "0.00012"} {
		if got := Figure(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

// Charts of all kinds have the style sheet's colours alone, and tips; numbers that have no
// position are left out.
func TestSVG(t *testing.T) {
	dots := []Dot{Lone(1, 2), {X: 10, Y: 20, Least: 0, Most: 30, Label: "second"}, Lone(4, 0), Lone(0, 4), Lone(5, math.NaN())}
	for kind := Lines; kind <= Bars; kind++ {
		for _, log := range []bool{false, true} {
			c := Chart{
				Name: "a name", Title: "<title>", Kind: kind, X: Axis{Label: "x", Log: log}, Y: Axis{Label: "y", Log: log},
				Curves: []Curve{{Name: "one & only", Colour: 0, Dots: dots}, {Name: "other", Colour: 5, Dots: dots}, {Name: "none"}},
				Papers: []Curve{{Name: "other", Colour: 5, Dots: dots[:1]}},
			}
			for _, svg := range []string{string(c.SVG()), string(File(c, c))} {
				if found := regexp.MustCompile(`NaN|Inf|%!|#0\d{5}|Liberation`).FindString(svg); found != "" {
					t.Errorf("%d, logarithmic %v: %q in\n%s", kind, log, found, svg)
				}
				for _, want := range []string{"var(--s0)", "var(--s5)", "currentColor", "one &amp; only", "&lt;title&gt;", "the paper, other at "} {
					if !strings.Contains(svg, want) {
						t.Errorf("%d, logarithmic %v: no %q in\n%s", kind, log, want, svg)
					}
				}
			}
		}
	}
	if svg := (Chart{Curves: []Curve{{Name: "none"}}}).SVG(); svg != "" {
		t.Errorf("of nothing: %s", svg)
	}
}
