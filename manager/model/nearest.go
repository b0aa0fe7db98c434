package model

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrNoModel reports that no measurement applies to the query.
var ErrNoModel = errors.New("no model")

// ImpossibleError reports that no configuration of a space meets an SLO, and what would be
// possible.
type ImpossibleError struct {
	Asked SLO
	// AtLatency has the highest throughput within the latency of the SLO; or, if no
	// configuration is that fast, the least latency. Its prediction, like that of
	// AtThroughput, is an SLO that can be met.
	AtLatency Found
	// AtThroughput has the least latency at the throughput of the SLO; or, if no
	// configuration has that, the highest throughput.
	AtThroughput Found
}

// Nearest returns the one of the two that is nearer to the SLO, by the ratio that is
// missed.
func (e *ImpossibleError) Nearest() Found {
	away := func(p Performance) float64 {
		return max(p.LatencyUs/e.Asked.latency(), e.Asked.Mops/p.Mops)
	}
	if away(e.AtThroughput.Predicted) < away(e.AtLatency.Predicted) {
		return e.AtThroughput
	}
	return e.AtLatency
}

func (e *ImpossibleError) Error() string {
	var instead []string
	at, with := e.AtLatency, e.AtThroughput
	if p := at.Predicted; p.LatencyUs > e.Asked.latency() {
		instead = append(instead, fmt.Sprintf("none is faster than %v (configuration %v)", p, at.Config))
	} else if e.Asked.LatencyUs > 0 {
		instead = append(instead, fmt.Sprintf("within that latency at most %v (configuration %v)", Performance{Mops: p.Mops}, at.Config))
	}
	if p := with.Predicted; p.Mops < e.Asked.Mops {
		instead = append(instead, fmt.Sprintf("none has more than %v, at %v (configuration %v)",
			Performance{Mops: p.Mops}, Performance{LatencyUs: p.LatencyUs}, with.Config))
	} else if e.Asked.Mops > 0 {
		instead = append(instead, fmt.Sprintf("that throughput takes at least %v (configuration %v)", Performance{LatencyUs: p.LatencyUs}, with.Config))
	}
	return fmt.Sprintf("no configuration has %v: %s", e.Asked, strings.Join(instead, "; "))
}

// String returns the SLO without rounding.
func (o SLO) String() string { return o.with(fmt.Sprint(o.LatencyUs), fmt.Sprint(o.Mops)) }

// String returns both figures with four digits, and latencies to the nanosecond at most.
// They are rounded so that an SLO of these figures can be met.
func (p Performance) String() string {
	return SLO(p).with(decimal(p.LatencyUs, 3, true), decimal(p.Mops, math.MaxInt, false))
}

// with returns the SLO in these figures.
func (o SLO) with(latencyUs, mops string) string {
	var parts []string
	if o.LatencyUs > 0 {
		parts = append(parts, "a mean latency of "+latencyUs+" us")
	}
	if o.Mops > 0 {
		parts = append(parts, mops+" Mop/s")
	}
	if parts == nil {
		return "any performance"
	}
	return strings.Join(parts, " and ")
}

// decimal formats x with four digits, or more if it is a larger whole number. It rounds up
// or down, and to at most the given number of decimal places.
func decimal(x float64, places int, up bool) string {
	if !(x > 0) || math.IsInf(x, 1) {
		return fmt.Sprint(x)
	}
	places = min(places, max(0, 3-int(math.Floor(math.Log10(x)))))
	text := strconv.FormatFloat(x, 'f', places, 64)
	// The text is the nearest decimal, which may be on the wrong side of x.
	near, err := strconv.ParseFloat(text, 64)
	if step := math.Pow10(-places); err == nil && up && near < x {
		text = strconv.FormatFloat(near+step, 'f', places, 64)
	} else if err == nil && !up && near > x {
		text = strconv.FormatFloat(near-step, 'f', places, 64)
	}
	if places > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// impossible returns an error with what would be possible instead of an SLO.
func (f *Surface) impossible(space Space, slo SLO) error {
	faster := func(best, p Performance) bool { return p.LatencyUs < best.LatencyUs }
	e := &ImpossibleError{Asked: slo}
	var ok bool
	if e.AtLatency, ok = f.extreme(space, func(best, p Performance) bool {
		return p.LatencyUs <= slo.latency() && p.Mops > best.Mops
	}); !ok {
		if e.AtLatency, ok = f.extreme(space, faster); !ok {
			return ErrNoModel
		}
	}
	if e.AtThroughput, ok = f.extreme(space, func(best, p Performance) bool {
		return p.Mops >= slo.Mops && faster(best, p)
	}); !ok {
		e.AtThroughput, _ = f.extreme(space, func(best, p Performance) bool {
			return p.LatencyUs < math.MaxFloat64 && p.Mops > best.Mops
		})
	}
	return e
}

// extreme finds the first configuration that no other improves on. The function improves
// must be monotone: less latency or more throughput never makes it false.
func (f *Surface) extreme(space Space, improves func(best, p Performance) bool) (found Found, ok bool) {
	found.Predicted = unknown
	wanted := func(p Performance) bool { return improves(found.Predicted, p) }
	v, row := f.newSlice(), make([]Performance, len(f.q))
	for s := 0; s <= space.C; s++ {
		for c := max(1, s); c <= space.C; c++ {
			if !wanted(f.bestAt(c, s)) {
				continue
			}
			v.at(c, s)
			last := space.batches(s)
			for b := 1; b <= last; b++ {
				cell := v.cell(b, last, space.Opt, wanted)
				for ; b <= cell.end && cell.hopeful; b++ {
					v.row(b, row)
					for q := space.Opt; q <= space.Q; q++ {
						if p := f.depth(row, q); wanted(p) {
							found, ok = Found{Config: Config{c, s, b, q}, Predicted: p}, true
						}
					}
				}
				b = cell.end
			}
		}
	}
	return found, ok
}
