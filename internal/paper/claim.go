package paper

import (
	"fmt"
	"maps"
	"math"
	"slices"
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
	// Holds bounds our number for the claim to hold. The zero value claims nothing: the number
	// is only reported, because other hardware gives another.
	Holds Bounds
	// Because explains why the claim does not hold here, if that is known in advance.
	Because string
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

// Verdict is a claim and the measurement it was judged by. Its JSON form is one line of the
// claims file.
type Verdict struct {
	Figure string `json:"figure"`
	Q      string `json:"q,omitempty"`
	Claim  string `json:"claim"`
	Unit   string `json:"unit,omitempty"`
	// Paper is nil if the paper gives no number, Ours if nothing was measured. Ratio is Ours /
	// Paper, nil if either is.
	Paper *float64 `json:"paper"`
	Ours  *float64 `json:"ours"`
	Least *float64 `json:"least,omitempty"` // least and greatest round
	Most  *float64 `json:"most,omitempty"`
	Ratio *float64 `json:"ratio,omitempty"`
	// Bound describes the claim's Bounds. Holds is nil if nothing is claimed or nothing was
	// measured.
	Bound string `json:"bound,omitempty"`
	Holds *bool  `json:"holds"`
	// Reason says why the claim does not hold, or why nothing was measured.
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
		v.Reason = "not measured: " + err.Error()
		for _, out := range why {
			if out.Trial == f.Trial {
				v.Reason += "; " + out.String()
			}
		}
		return v
	}
	ours := Rounds(slices.Collect(maps.Values(r)))
	if math.IsNaN(ours.Median) || math.IsInf(ours.Median, 0) {
		v.Reason = "not measured: nothing was done in that time"
		return v
	}
	v.Ours = &ours.Median
	if ours.Rounds > 1 {
		v.Least, v.Most = &ours.Least, &ours.Most
	}
	if c.Paper != 0 {
		ratio := ours.Median / c.Paper
		v.Ratio = &ratio
	}
	if !c.Holds.some() {
		return v
	}
	holds := c.Holds.has(ours.Median)
	v.Holds = &holds
	if !holds {
		v.Reason = c.Because
		if v.Reason == "" {
			v.Reason = "the cause is not known"
		}
	}
	if c.Holds.has(ours.Least) != holds || c.Holds.has(ours.Most) != holds {
		v.Warning = fmt.Sprintf("the rounds disagree (%.4g to %.4g): too wide a spread to conclude", ours.Least, ours.Most)
	}
	return v
}
