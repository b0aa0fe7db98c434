package model

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrNoModel says that nothing was measured that an answer could rest on.
var ErrNoModel = errors.New("no model")

// ImpossibleError says that no configuration of a space meets an SLO, and what would
// be possible.
type ImpossibleError struct {
	Asked SLO
	// AtLatency is the most throughput within the latency that was asked; or, if
	// nothing is that fast, the least latency that there is. As an SLO, the prediction
	// can be met, and so can that of AtThroughput.
	AtLatency Found
	// AtThroughput is the least latency with the throughput that was asked; or, if
	// there is no such throughput, the most that there is.
	AtThroughput Found
}

// Nearest is the one of both that is nearer to what was asked, by the ratio that has to
// be given up.
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

// String says what is asked, just as it was.
func (o SLO) String() string { return o.with(fmt.Sprint(o.LatencyUs), fmt.Sprint(o.Mops)) }

// String says both figures in four digits, and latencies in no less than nanoseconds.
// They are rounded so that what is said can be had by whoever asks for it.
func (p Performance) String() string {
	return SLO(p).with(decimal(p.LatencyUs, 3, true), decimal(p.Mops, math.MaxInt, false))
}

// with says what is asked, in these figures.
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

// decimal writes x in four digits, or more if it is a larger whole number, rounded up or
// down to no more than so many decimal places.
func decimal(x float64, places int, up bool) string {
	if !(x > 0) || math.IsInf(x, 1) {
		return fmt.Sprint(x)
	}
	places = min(places, max(0, 3-int(math.Floor(math.Log10(x)))))
	text := strconv.FormatFloat(x, 'f', places, 64)
	// That is the nearest one, which may be on the wrong side of x.
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

// impossible finds what is possible instead of an SLO.
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

// extreme finds the first configuration that no other improves on. What improves
// does so all the more with less latency or more throughput.
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
