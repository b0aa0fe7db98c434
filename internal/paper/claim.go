package paper

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Claim is a number that the paper reports, or a statement about a figure. The report shows it
// beside our measurement.
type Claim struct {
	Q    string // number in the list of requirements, or ""
	Text string // the paper's statement
	// Paper is the paper's number; 0 if it gives none.
	Paper float64
	Unit  string // unit of Paper and Ours
	Ours  Quantity
	// Holds bounds our number for the claim to hold: near the paper's number, or where the paper
	// only says which of two is more, by that. The zero value claims nothing: the number is only
	// reported, because other hardware gives another.
	Holds Bounds
	// Own sets Holds near this project's own number (recorded.go) instead, where it is so much
	// better that the paper's could hardly fail.
	Own bool
	// Constant, if set, names the constants of the network model or of the experiment that
	// determine the number. It then proves nothing, and there are no bounds.
	Constant string
	// Causes are possible reasons for a claim that does not hold. A reason is given if the run
	// has measured it.
	Causes []Cause
}

// Cause is a reason why a claim does not hold.
type Cause struct {
	Shown Quantity // measurement that shows it, in the same trial
	By    Bounds   // values of Shown by which it is shown
	Text  string   // format of the reason, with one verb for the value
}

// Bounds are the least and the greatest accepted number. The zero value accepts all.
type Bounds struct{ Least, Most float64 }

// AtLeast returns Bounds without an upper end.
func AtLeast(v float64) Bounds { return Bounds{v, math.Inf(1)} }

// AtMost returns Bounds without a lower end.
func AtMost(v float64) Bounds { return Bounds{math.Inf(-1), v} }

// Between returns Bounds with both ends.
func Between(least, most float64) Bounds { return Bounds{least, most} }

func (b Bounds) some() bool { return b != Bounds{} }

func (b Bounds) has(v float64) bool { return v >= b.Least && v <= b.Most }

// String describes the bounds in words.
func (b Bounds) String() string {
	switch {
	case !b.some():
		return ""
	case math.IsInf(b.Most, 1):
		return fmt.Sprintf("at least %.4g", b.Least)
	case math.IsInf(b.Least, -1):
		return fmt.Sprintf("at most %.4g", b.Most)
	}
	return fmt.Sprintf("%.4g to %.4g", b.Least, b.Most)
}

// nearPaper bounds a ratio from below by four fifths of the paper's.
func nearPaper(ratio float64) Bounds { return AtLeast(0.8 * ratio) }

// Outcome says what became of a claim. Claims that hold or do not are counted, others are not.
type Outcome string

// The outcomes.
const (
	Holds      Outcome = "holds"
	Fails      Outcome = "does not hold"
	Unmeasured Outcome = "not measured"
	ByConstant Outcome = "a constant" // see Claim.Constant
	Reported   Outcome = "reported"   // the claim has no bounds
)

// Counted reports whether the claim was judged.
func (o Outcome) Counted() bool { return o == Holds || o == Fails }

// Tally counts outcomes.
type Tally map[Outcome]int

// Count returns the tally of verdicts.
func Count(verdicts []Verdict) Tally {
	t := make(Tally)
	for _, v := range verdicts {
		t[v.Outcome]++
	}
	return t
}

// String describes the tally in words.
func (t Tally) String() string {
	return fmt.Sprintf("%d of %d claims that were judged hold; not counted: %d not measured, %d given by constants, %d without a bound",
		t[Holds], t[Holds]+t[Fails], t[Unmeasured], t[ByConstant], t[Reported])
}

// Verdict is a claim and the measurement it was judged by. Its JSON form is one line of the
// claims file.
type Verdict struct {
	Figure string `json:"figure"`
	Q      string `json:"q,omitempty"`
	Claim  string `json:"claim"`
	Unit   string `json:"unit,omitempty"`
	// Paper is nil if the paper gives no number, Ours if nothing was measured or nothing was
	// done. Ratio is Ours / Paper, nil if either is.
	Paper *float64 `json:"paper"`
	Ours  *float64 `json:"ours"`
	Least *float64 `json:"least,omitempty"` // least and greatest round
	Most  *float64 `json:"most,omitempty"`
	Ratio *float64 `json:"ratio,omitempty"`
	Bound string   `json:"bound,omitempty"` // the claim's Bounds in words
	// Outcome is the same in all forms of a report.
	Outcome Outcome `json:"verdict"`
	// Reason says why the claim does not hold, why there is no number, or which constants give
	// it.
	Reason string `json:"reason"`
	// Warning is set if some rounds are within the bounds and others are not.
	Warning string `json:"warning,omitempty"`
}

// Judge compares a figure's claims with the measurements. why lists what was left out, with
// the reasons.
func Judge(f Figure, d *Data, why []LeftOut) []Verdict {
	var verdicts []Verdict
	for _, c := range f.Claims {
		verdicts = append(verdicts, c.judge(f, d, why))
	}
	return verdicts
}

func (c Claim) judge(f Figure, d *Data, why []LeftOut) Verdict {
	v := Verdict{Figure: f.Name, Q: c.Q, Claim: c.Text, Unit: c.Unit, Bound: c.Holds.String()}
	if c.Paper != 0 {
		v.Paper = &c.Paper
	}
	r, err := c.Ours.in(d, f.Trial)
	if err != nil {
		v.Outcome, v.Reason = Unmeasured, err.Error()
		for _, out := range why {
			if out.Trial == f.Trial {
				v.Reason += "; " + out.String()
			}
		}
		return v
	}
	ours, idle := summary(r)
	if ours.Rounds > 0 {
		v.Ours = &ours.Median
		if c.Paper != 0 {
			ratio := ours.Median / c.Paper
			v.Ratio = &ratio
		}
	}
	if ours.Rounds > 1 {
		v.Least, v.Most = &ours.Least, &ours.Most
	}
	switch {
	case c.Constant != "":
		v.Outcome, v.Reason = ByConstant, c.Constant
		return v
	case !c.Holds.some():
		v.Outcome, v.Reason = Reported, idle
		return v
	case idle != "":
		v.Outcome, v.Reason = Fails, idle
		return v
	}
	v.Outcome = Holds
	holds := c.Holds.has(ours.Median)
	if !holds {
		v.Outcome, v.Reason = Fails, c.cause(f, d)
	}
	if c.Holds.has(ours.Least) != holds || c.Holds.has(ours.Most) != holds {
		v.Warning = fmt.Sprintf("the rounds disagree (%.4g to %.4g): too wide a spread to conclude", ours.Least, ours.Most)
	}
	return v
}

// summary returns the Value of the rounds in which something was done. In the others the number
// is a ratio to nothing, NaN or infinite. idle says so if there are any: they fail a claim, as
// otherwise a store that does nothing is excused.
func summary(r rounds) (v Value, idle string) {
	numbers := slices.DeleteFunc(slices.Collect(maps.Values(r)), func(n float64) bool { return math.IsNaN(n) || math.IsInf(n, 0) })
	switch none := len(r) - len(numbers); {
	case none == 0:
	case len(numbers) == 0:
		idle = "nothing was done in that time"
	default:
		idle = fmt.Sprintf("nothing was done in that time, in %d of %d rounds", none, len(r))
	}
	return Rounds(numbers), idle
}

// cause returns the reasons that the run has measured.
func (c Claim) cause(f Figure, d *Data) string {
	var reasons []string
	for _, cause := range c.Causes {
		r, err := cause.Shown.in(d, f.Trial)
		if err != nil {
			continue // not measured, so it shows nothing
		}
		if shown, _ := summary(r); shown.Rounds > 0 && cause.By.has(shown.Median) {
			reasons = append(reasons, fmt.Sprintf(cause.Text, shown.Median))
		}
	}
	if reasons == nil {
		return "the cause is not known"
	}
	return strings.Join(reasons, "; ")
}
