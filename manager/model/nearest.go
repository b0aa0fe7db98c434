package model

import (
	"errors"
	"fmt"
	"math"
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
	s := fmt.Sprintf("no configuration has %v: ", e.Asked)
	if f := e.AtLatency; f.Predicted.LatencyUs <= e.Asked.latency() {
		s += fmt.Sprintf("within that latency at most %s (configuration %v)", SLO{Mops: f.Predicted.Mops}, f.Config)
	} else {
		s += fmt.Sprintf("none is faster than %s (configuration %v)", f.Predicted, f.Config)
	}
	if f := e.AtThroughput; f.Predicted.Mops >= e.Asked.Mops {
		s += fmt.Sprintf("; that throughput takes at least %s (configuration %v)", SLO{LatencyUs: f.Predicted.LatencyUs}, f.Config)
	} else {
		s += fmt.Sprintf("; none has more than %s (configuration %v)", f.Predicted, f.Config)
	}
	return s
}

// String says both figures.
func (p Performance) String() string { return SLO(p).String() }

// String says what is asked.
func (o SLO) String() string {
	var parts []string
	if o.LatencyUs > 0 {
		parts = append(parts, fmt.Sprintf("a mean latency of %.3g us", o.LatencyUs))
	}
	if o.Mops > 0 {
		parts = append(parts, fmt.Sprintf("%.3g Mop/s", o.Mops))
	}
	if parts == nil {
		return "any performance"
	}
	return strings.Join(parts, " and ")
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
