package paper

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redykv/redykv/manager"
)

// verdictOn returns the verdict on the claim of a figure whose text begins like that.
func verdictOn(t *testing.T, figure, text string, d *Data) Verdict {
	t.Helper()
	figures, err := Choose([]string{figure})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Judge(figures[0], d, nil) {
		if strings.HasPrefix(v.Claim, text) {
			return v
		}
	}
	t.Fatalf("%s has no claim %q", figure, text)
	return Verdict{}
}

// The mean latency of a closed loop is that of its throughput. Figure 7 does not judge it, so that
// it can fail where figure 8 holds.
func TestLatencyIsNotJudgedByThroughput(t *testing.T) {
	var all []Measurement
	for place, mops := range []float64{0.1, 0.16, 0.22, 0.74, 1.1, 1.2} {
		all = append(all, Measurement{
			Trial: "optimisations", Series: "mixed", X: float64(place), Round: 1,
			Values: map[string]float64{"mops": mops, "mean_us": 8 / mops, "p50_us": 20, "p99_us": 50},
		})
	}
	d := NewData(all)
	for _, c := range []struct{ throughput, latency string }{
		{"queue depth 4 instead of 1", "queue depth 4 instead of 1: the median"},
		{"pinned threads", "pinned threads: the median"},
	} {
		if fig7, fig8 := verdictOn(t, "fig7", c.latency, d), verdictOn(t, "fig8", c.throughput, d); fig7.Outcome != Fails || fig8.Outcome == Unmeasured || *fig7.Ours != 1 {
			t.Errorf("%+v\n%+v", fig7, fig8)
		}
	}
}

// An SLO is kept by all caches, of its latency and of its throughput.
func TestAllSLOsAreKept(t *testing.T) {
	for _, missed := range []float64{0, 1} { // of 100
		var all []Measurement
		for i := range 100 {
			kept := 1.0
			if float64(i) < missed {
				kept = 0
			}
			all = append(all, Measurement{Trial: "slos", Series: sloSeries, Round: i + 1, Values: map[string]float64{"latency_kept": kept, "throughput_kept": kept}})
		}
		want := Holds
		if missed > 0 {
			want = Fails
		}
		for figure, text := range map[string]string{"fig13": "all measured latencies", "fig14": "all of the throughput"} {
			if v := verdictOn(t, figure, text, NewData(all)); v.Outcome != want {
				t.Errorf("%g SLOs of 100 missed: %+v", missed, v)
			}
		}
	}
}

// What a reader has to know of a bound stands beside the figure.
func TestScaledTexts(t *testing.T) {
	for _, f := range Figures() {
		if margin := fmt.Sprintf("%g %%", 100*manager.DefaultSLOMargin); f.Trial == "slos" && !strings.Contains(f.Scaled, margin) {
			t.Errorf("%s does not tell the margin of %s", f.Name, margin)
		}
		for _, c := range f.Claims {
			if c.Own && (strings.Contains(c.Text, "SSD") || strings.Contains(c.Text, "SMB")) && !strings.Contains(f.Scaled, "for the disk's sake") {
				t.Errorf("%s: %s is bounded by this project's own disk, and the figure does not say so", f.Name, c.Text)
			}
		}
	}
}
