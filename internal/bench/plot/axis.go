package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/redykv/redykv/internal/units"
)

// Axis describes an axis of a chart.
type Axis struct {
	Label string // with the unit
	Log   bool
	Bytes bool // the numbers are bytes, written as 1KiB
}

// axis maps numbers to positions from 0 to 1.
type axis struct {
	Axis
	low, high float64
	ticks     []float64
}

// newAxis returns an axis that covers some numbers. A linear axis begins at 0, or below. A
// logarithmic one leaves out numbers without a logarithm.
func newAxis(a Axis, some []float64) axis {
	x := axis{Axis: a, low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range some {
		if math.IsNaN(v) || math.IsInf(v, 0) || a.Log && v <= 0 {
			continue
		}
		x.low, x.high = min(x.low, v), max(x.high, v)
	}
	if x.low > x.high {
		x.low, x.high = 1, 1
	}
	if a.Log {
		x.logTicks()
	} else {
		x.linearTicks()
	}
	return x
}

func (x *axis) linearTicks() {
	x.low = min(x.low, 0)
	if x.high <= x.low {
		x.high = x.low + 1
	}
	step := niceStep((x.high - x.low) / 5)
	x.low = math.Floor(x.low/step) * step
	x.high = math.Ceil(x.high/step-1e-9) * step
	for v := x.low; v <= x.high+step/2; v += step {
		x.ticks = append(x.ticks, math.Round(v/step)*step)
	}
}

// niceStep returns the least of 1, 2, 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, times := range []float64{1, 2, 5} {
		if times*power >= v*(1-1e-9) {
			return times * power
		}
	}
	return 10 * power
}

// logTicks marks powers of ten, and where those are few, 2 and 5 times them.
func (x *axis) logTicks() {
	low, high := math.Floor(math.Log10(x.low)+1e-9), math.Ceil(math.Log10(x.high)-1e-9)
	if high <= low {
		high = low + 1
	}
	times := []float64{1}
	if high-low <= 2 {
		times = []float64{1, 2, 5}
	}
	for p := low; p <= high; p++ {
		for _, t := range times {
			if v := t * math.Pow(10, p); p < high || t == 1 {
				x.ticks = append(x.ticks, v)
			}
		}
	}
	x.low, x.high = math.Pow(10, low), math.Pow(10, high)
}

// mark puts the ticks at these numbers, if they are few.
func (x *axis) mark(at []float64) {
	if len(at) > 1 && len(at) <= 9 {
		x.ticks = at
		if x.Log { // the axis need not end at a power of ten
			x.low, x.high = at[0], at[len(at)-1]
		}
	}
}

// at returns the position of a number.
func (x *axis) at(v float64) float64 {
	if x.Log {
		if v <= 0 {
			return 0
		}
		return (math.Log(v) - math.Log(x.low)) / (math.Log(x.high) - math.Log(x.low))
	}
	return (v - x.low) / (x.high - x.low)
}

// text returns a number as the axis writes it.
func (x *axis) text(v float64) string {
	if x.Bytes {
		return units.Size(int64(v)).String()
	}
	return Figure(v)
}

// Figure returns a number with three significant digits.
func Figure(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case v == 0:
		return "0"
	case abs >= 1e6:
		return trim(fmt.Sprintf("%.3g", v/1e6)) + " M"
	case abs >= 100:
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	case abs >= 1e-3:
		decimals := max(0, 2-int(math.Floor(math.Log10(abs))))
		return trim(strconv.FormatFloat(v, 'f', decimals, 64))
	}
	return fmt.Sprintf("%.2g", v)
}

// trim removes trailing zeros after the decimal point.
func trim(s string) string {
	if strings.Contains(s, ".") && !strings.Contains(s, "e") {
		return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return s
}
