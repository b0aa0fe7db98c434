package paper

import (
	"fmt"
	"io"
	"math"

	"github.com/redykv/redykv/internal/bench"
)

// Claim is a number that the paper reports, or something that it says of a figure, to
// stand beside what was measured here.
type Claim struct {
	Q    string // the number in the list of requirements, or ""
	Text string // what the paper says
	// Paper is the paper's number; 0 where it gives none.
	Paper float64
	Unit  string // of both
	Ours  Quantity
	// Holds says between which bounds ours has to be for the claim to hold. Zero: it
	// is a number to look at, of which nothing is claimed on other hardware.
	Holds Bounds
	// Because says why it does not hold, where that can be known beforehand.
	Because string
}

// Bounds are what a claim is held to. The zero value bounds nothing.
type Bounds struct{ Least, Most float64 }

// AtLeast has no upper end.
func AtLeast(v float64) Bounds { return Bounds{v, math.Inf(1)} }

// AtMost has no lower end.
func AtMost(v float64) Bounds { return Bounds{math.Inf(-1), v} }

// Between has both.
func Between(least, most float64) Bounds { return Bounds{least, most} }

func (b Bounds) some() bool { return b != Bounds{} }

func (b Bounds) has(v float64) bool { return v >= b.Least && v <= b.Most }

// String is the bounds in words.
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

// Verdict is a claim beside what was measured. Its JSON form is one line of the file of
// claims.
type Verdict struct {
	Figure string `json:"figure"`
	Q      string `json:"q,omitempty"`
	Claim  string `json:"claim"`
	Unit   string `json:"unit,omitempty"`
	// Paper is nil where the paper gives no number, Ours where nothing was measured;
	// so is Ratio, of ours to the paper's, then.
	Paper *float64 `json:"paper"`
	Ours  *float64 `json:"ours"`
	Least *float64 `json:"least,omitempty"` // of the rounds
	Most  *float64 `json:"most,omitempty"`
	Ratio *float64 `json:"ratio,omitempty"`
	// Bound is what the claim is held to. Holds is nil where nothing is claimed, and
	// where nothing was measured.
	Bound string `json:"bound,omitempty"`
	Holds *bool  `json:"holds"`
	// Reason says why it does not hold, or why nothing was measured.
	Reason string `json:"reason"`
	// Warning says that the rounds disagree.
	Warning string `json:"warning,omitempty"`
}

// Judge puts a figure's claims beside what was measured. why says, of what was left out,
// why that was.
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
	ours := Rounds(r.numbers())
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

// WriteClaims writes one line of JSON for each verdict.
func WriteClaims(w io.Writer, verdicts []Verdict) error { return bench.WriteJSON(w, verdicts) }
