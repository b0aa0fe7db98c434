package paper

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Change is a figure whose difference between two runs is larger than the spread of their
// rounds.
type Change struct {
	Trial, Series, Metric string
	At                    string
	Before, After         Value
}

// Ratio is After over Before.
func (c Change) Ratio() float64 { return c.After.Median / c.Before.Median }

// Difference is the result of comparing two runs.
type Difference struct {
	Compared int // number of points that both runs measured
	// OnlyBefore and OnlyAfter are trials that only one run measured.
	OnlyBefore, OnlyAfter []string
	Changes               []Change
	// Verdicts are pairs of verdicts on one claim that held in one run and not in the other.
	Verdicts [][2]Verdict
	// Unlike lists differences between the runs' circumstances, such as the machine.
	Unlike []string
}

// leastChange is the least relative difference of medians that counts as a change. A few
// rounds may be close to each other by chance.
const leastChange = 0.05

// compared lists the metrics of speed.
var compared = []string{"mops", "mean_us", "p50_us", "p99_us", "drop_percent", "during_mops", "p99_during_us"}

// Diff compares two runs. A figure has changed if the ranges of the runs' rounds do not
// overlap and the medians differ by 5 %; both runs need at least two rounds. Distributions are
// compared by their claims only.
func Diff(before, after Head, was, is *Data) Difference {
	d := Difference{Unlike: unlike(before, after)}
	for _, t := range trials {
		name := t.trialName()
		switch a, b := len(was.Trial(name)), len(is.Trial(name)); {
		case a > 0 && b == 0:
			d.OnlyBefore = append(d.OnlyBefore, name)
		case a == 0 && b > 0:
			d.OnlyAfter = append(d.OnlyAfter, name)
		}
		for _, series := range was.Series(name) {
			for _, x := range was.Xs(name, series) {
				for _, metric := range compared {
					a, b := was.Metric(name, series, x, metric), is.Metric(name, series, x, metric)
					if a.Rounds < 2 || b.Rounds < 2 {
						continue
					}
					d.Compared++
					apart := a.Most < b.Least || b.Most < a.Least
					if apart && math.Abs(b.Median-a.Median) >= leastChange*math.Abs(a.Median) {
						d.Changes = append(d.Changes, Change{name, series, metric, place(was.At(name, series, x)[0]), a, b})
					}
				}
			}
		}
	}
	for _, f := range figures {
		a, b := Judge(f, was, before.LeftOut), Judge(f, is, after.LeftOut)
		for i := range a {
			if a[i].Outcome.Counted() && b[i].Outcome.Counted() && a[i].Outcome != b[i].Outcome {
				d.Verdicts = append(d.Verdicts, [2]Verdict{a[i], b[i]})
			}
		}
	}
	return d
}

func place(m Measurement) string {
	if m.Label != "" {
		return m.Label
	}
	return number(m.X)
}

// unlike lists the differences between the circumstances of two runs.
func unlike(a, b Head) []string {
	var list []string
	for _, of := range []struct{ what, was, is string }{
		{"machine", a.Machine, b.Machine}, {"kernel", a.Kernel, b.Kernel}, {"transport", a.Transport, b.Transport}, {"network", a.Net, b.Net},
		{"trace", a.Trace, b.Trace}, {"scale", fmt.Sprintf("%+v", a.Scale), fmt.Sprintf("%+v", b.Scale)},
	} {
		if of.was != of.is {
			list = append(list, fmt.Sprintf("%s: %s, then %s", of.what, of.was, of.is))
		}
	}
	return list
}

// Write prints the difference as text.
func (d Difference) Write(w io.Writer) error {
	var b strings.Builder
	for _, line := range d.Unlike {
		fmt.Fprintf(&b, "not alike: %s\n", line)
	}
	for _, one := range []struct {
		when   string
		trials []string
	}{{"before", d.OnlyBefore}, {"after", d.OnlyAfter}} {
		if len(one.trials) > 0 {
			fmt.Fprintf(&b, "measured %s only: %s\n", one.when, strings.Join(one.trials, ", "))
		}
	}
	if d.Compared == 0 {
		fmt.Fprintln(&b, "no point was measured in both, in two rounds or more: there is nothing to compare")
	} else {
		fmt.Fprintf(&b, "%d of %d figures changed beyond their rounds' spread\n", len(d.Changes), d.Compared)
	}
	if len(d.Changes) > 0 {
		changes := slices.SortedStableFunc(slices.Values(d.Changes), func(a, b Change) int {
			return int(math.Copysign(1, math.Abs(math.Log(b.Ratio()))-math.Abs(math.Log(a.Ratio()))))
		})
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "\ntrial\tseries\tat\tmetric\tbefore\tafter\tratio")
		for _, c := range changes {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%.2fx\n", c.Trial, c.Series, c.At, c.Metric, c.Before, c.After, c.Ratio())
		}
		if err := tw.Flush(); err != nil {
			return fmt.Errorf("difference: %w", err)
		}
	}
	for _, v := range d.Verdicts {
		fmt.Fprintf(&b, "\n%s: %s: %s before (%s), %s now (%s)", v[0].Figure, v[0].Claim, past[v[0].Outcome], v[0].number(), past[v[1].Outcome], v[1].number())
	}
	if len(d.Verdicts) > 0 {
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("difference: %w", err)
	}
	return nil
}

// number describes our number, or why there is none.
func (v Verdict) number() string {
	if v.Ours == nil {
		return v.Reason
	}
	return fmt.Sprintf("%.4g", *v.Ours)
}

// past has the words for outcomes of runs.
var past = map[Outcome]string{Holds: "held", Fails: "did not hold"}

// String prints the median with the range of the rounds.
func (v Value) String() string {
	if v.Rounds < 2 {
		return fmt.Sprintf("%.4g", v.Median)
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", v.Median, v.Least, v.Most)
}
