package paper

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/bench"
)

// Value summarises the rounds of a measurement: the median, the least and the greatest.
type Value struct {
	Median, Least, Most float64
	Rounds              int
}

// Rounds returns the Value of numbers. Without numbers all fields are NaN.
func Rounds(numbers []float64) Value {
	if len(numbers) == 0 {
		nan := math.NaN()
		return Value{Median: nan, Least: nan, Most: nan}
	}
	return Value{bench.Median(numbers), slices.Min(numbers), slices.Max(numbers), len(numbers)}
}

// Spread is the range of the rounds relative to the median.
func (v Value) Spread() float64 {
	if v.Median == 0 {
		return 0
	}
	return (v.Most - v.Least) / math.Abs(v.Median)
}

// Metric returns the Value of a metric at a point of a trial.
func (d *Data) Metric(trial, series string, x float64, metric string) Value {
	return Rounds(slices.Collect(maps.Values(byRound(d.At(trial, series, x), metric))))
}

// rounds are numbers by round. A number that belongs to no round, such as a quantile over all
// rounds, has round 0.
type rounds map[int]float64

func byRound(some []Measurement, metric string) rounds {
	r := make(rounds)
	for _, m := range some {
		if v, ok := m.Values[metric]; ok {
			r[m.Round] = v
		}
	}
	return r
}

// with combines r and o round by round. A number in round 0 is combined with every round of
// the other.
func (r rounds) with(o rounds, f func(a, b float64) float64) rounds {
	out := make(rounds)
	single, alone := r[0]
	other, otherAlone := o[0]
	switch {
	case alone && otherAlone:
		out[0] = f(single, other)
	case alone:
		for i, b := range o {
			out[i] = f(single, b)
		}
	case otherAlone:
		for i, a := range r {
			out[i] = f(a, other)
		}
	default:
		for i, a := range r {
			if b, ok := o[i]; ok {
				out[i] = f(a, b)
			}
		}
	}
	return out
}

// Quantity is a number computed from measurements, round by round. Series that are compared
// were measured in the same turn, so a ratio is of numbers taken close in time.
type Quantity interface {
	// in computes the quantity; trial is the figure's. It returns an error if something was
	// not measured.
	in(d *Data, trial string) (rounds, error)
}

// At is a metric at one point.
type At struct {
	Series string
	X      float64
	Metric string
}

func (a At) in(d *Data, trial string) (rounds, error) {
	r := byRound(d.At(trial, a.Series, a.X), a.Metric)
	if len(r) == 0 {
		return nil, fmt.Errorf("%s at %g of %s was not measured", a.Series, a.X, trial)
	}
	return r, nil
}

// Ratio is Over divided by Under.
type Ratio struct{ Over, Under Quantity }

func (q Ratio) in(d *Data, trial string) (rounds, error) {
	return combine(d, trial, q.Over, q.Under, func(a, b float64) float64 { return a / b })
}

// Loss is how much less Of is than From, in percent of From.
type Loss struct{ From, Of Quantity }

func (q Loss) in(d *Data, trial string) (rounds, error) {
	return combine(d, trial, q.From, q.Of, func(from, of float64) float64 { return 100 * (1 - of/from) })
}

// Minus is From minus Take.
type Minus struct{ From, Take Quantity }

func (q Minus) in(d *Data, trial string) (rounds, error) {
	return combine(d, trial, q.From, q.Take, func(a, b float64) float64 { return a - b })
}

// Gap is the absolute logarithm of A over B: 0 if they are equal, 1 if they differ by a factor
// of e.
type Gap struct{ A, B Quantity }

func (q Gap) in(d *Data, trial string) (rounds, error) {
	return combine(d, trial, q.A, q.B, func(a, b float64) float64 { return math.Abs(math.Log(a / b)) })
}

// Least is the minimum of several quantities.
type Least []Quantity

func (q Least) in(d *Data, trial string) (rounds, error) { return fold(d, trial, q, math.Min) }

// Most is the maximum of several quantities.
type Most []Quantity

func (q Most) in(d *Data, trial string) (rounds, error) { return fold(d, trial, q, math.Max) }

// Rise is the least ratio of a point of a series to the point before, up to X = UpTo.
type Rise struct {
	Series, Metric string
	UpTo           float64
}

func (q Rise) in(d *Data, trial string) (rounds, error) {
	xs := d.Xs(trial, q.Series)
	if len(xs) < 2 {
		return nil, fmt.Errorf("%s of %s was not measured at two points", q.Series, trial)
	}
	var steps Least
	for i := 1; i < len(xs) && xs[i] <= q.UpTo; i++ {
		steps = append(steps, Ratio{At{Series: q.Series, X: xs[i], Metric: q.Metric}, At{Series: q.Series, X: xs[i-1], Metric: q.Metric}})
	}
	return steps.in(d, trial)
}

// Quantile is the number that a share of Part of the metric's values does not exceed.
type Quantile struct {
	Series, Metric string
	Part           float64
}

func (q Quantile) in(d *Data, trial string) (rounds, error) {
	return d.overall(trial, q.Series, q.Metric, func(numbers []float64) float64 {
		return bench.Quantile(numbers, q.Part)
	})
}

// Mean is the mean of a metric over all rounds.
type Mean struct{ Series, Metric string }

func (q Mean) in(d *Data, trial string) (rounds, error) {
	return d.overall(trial, q.Series, q.Metric, bench.Mean)
}

// overall computes a number from a series' numbers of all rounds.
func (d *Data) overall(trial, series, metric string, of func([]float64) float64) (rounds, error) {
	var numbers []float64
	for _, m := range d.Trial(trial) {
		if v, ok := m.Values[metric]; ok && m.Series == series {
			numbers = append(numbers, v)
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("%s of %s was not measured", series, trial)
	}
	return rounds{0: of(numbers)}, nil
}

func combine(d *Data, trial string, a, b Quantity, f func(a, b float64) float64) (rounds, error) {
	left, err := a.in(d, trial)
	if err != nil {
		return nil, err
	}
	right, err := b.in(d, trial)
	if err != nil {
		return nil, err
	}
	both := left.with(right, f)
	if len(both) == 0 {
		return nil, fmt.Errorf("no round of %s has both", trial)
	}
	return both, nil
}

func fold(d *Data, trial string, all []Quantity, f func(a, b float64) float64) (rounds, error) {
	var sum rounds
	var missing []string
	for _, q := range all {
		r, err := q.in(d, trial)
		switch {
		case err != nil:
			missing = append(missing, err.Error())
		case sum == nil:
			sum = r
		default:
			sum = sum.with(r, f)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("%s", strings.Join(missing, "; "))
	}
	return sum, nil
}
