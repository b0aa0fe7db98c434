package model

import (
	"fmt"
	"math"
	"sort"
)

// Performance is what a configuration achieves with as many requests in flight as it allows
// (A15).
type Performance struct {
	LatencyUs float64 `json:"latency_us"` // mean latency of a request, in microseconds
	Mops      float64 `json:"mops"`       // million requests a second
}

// Worse returns the worse of the two in each respect.
func (p Performance) Worse(o Performance) Performance {
	return Performance{LatencyUs: max(p.LatencyUs, o.LatencyUs), Mops: min(p.Mops, o.Mops)}
}

// better returns the better of the two in each respect.
func (p Performance) better(o Performance) Performance {
	return Performance{LatencyUs: min(p.LatencyUs, o.LatencyUs), Mops: max(p.Mops, o.Mops)}
}

// bestOf returns the least latency and the highest throughput of some.
func bestOf(some []Performance) Performance {
	best := unknown
	for _, p := range some {
		best = best.better(p)
	}
	return best
}

// bound returns a bound that no interpolated value exceeds: rounding may take an
// interpolation slightly past its corners.
func (p Performance) bound() Performance {
	const rounding = 1e-12
	return Performance{LatencyUs: p.LatencyUs * (1 - rounding), Mops: p.Mops * (1 + rounding)}
}

// unknown is the performance of a configuration that was not measured. It meets no SLO.
var unknown = Performance{LatencyUs: math.Inf(1)}

// noise is the relative difference that repeated measurements may have (A22).
const noise = 0.02

// Surface predicts the performance of all configurations of a space from measurements of
// some. It is immutable and safe for concurrent use.
//
// Between adjacent measured values of an axis it is linear in each parameter. Where s <= c
// cuts a cell of c and s in two, the remaining half has three corners and is linear in both
// (A20). If a corner is missing, the latency in the cell is infinite (A21).
type Surface struct {
	space Space
	c     []int // axes; that of s has 0 in front
	s     []int
	b     []int
	q     []int
	cells []Performance // by c, s, b, q; with b = 1 the same for each s
	best  []Performance // by c and s: least latency and highest throughput over all b and q

	// monotone means that latency never falls on the way down the left of any subtree, so
	// that figure 10's pruning misses nothing.
	monotone bool
}

// NewSurface makes a surface of measurements, which are of configurations on the space's
// grid. Configurations without one are missing.
func NewSurface(space Space, measured map[Config]Performance) (*Surface, error) {
	if err := space.Check(); err != nil {
		return nil, err
	}
	f := &Surface{space: space, c: axis(space.C), b: axis(space.B), q: axis(space.Q)}
	f.s = append([]int{0}, f.c...)
	f.cells = make([]Performance, len(f.c)*len(f.s)*len(f.b)*len(f.q))
	for i := range f.cells {
		f.cells[i] = unknown
	}
	whole := space // with all queue depths
	whole.Opt = 1
	for at, p := range measured {
		ci, si, bi, qi, ok := f.index(at)
		if !ok || at != at.alias() || !whole.Contains(at) {
			return nil, fmt.Errorf("model: %v is not on the grid of this space", at)
		}
		if !(p.LatencyUs > 0 && p.Mops > 0) || math.IsInf(p.LatencyUs, 1) || math.IsInf(p.Mops, 1) {
			return nil, fmt.Errorf("model: %v: latency of %v us, %v Mop/s", at, p.LatencyUs, p.Mops)
		}
		f.cells[f.cell(ci, si, bi)+qi] = p
	}
	for ci := range f.c { // batches of one use no server threads
		from := f.cells[f.cell(ci, 0, 0):][:len(f.q)]
		for si := 1; si < len(f.s) && f.s[si] <= f.c[ci]; si++ {
			copy(f.cells[f.cell(ci, si, 0):], from)
		}
	}
	f.fillMissing()
	f.monotone = f.smooth()
	per := len(f.b) * len(f.q)
	for i := 0; i < len(f.cells); i += per {
		f.best = append(f.best, bestOf(f.cells[i:i+per]))
	}
	return f, nil
}

// Space returns the space of the surface.
func (f *Surface) Space() Space { return f.space }

// Monotone reports whether measured latencies rise in the order of figure 10's search, so
// that its pruning misses nothing.
func (f *Surface) Monotone() bool { return f.monotone }

// extent returns the least and the highest figures measured in a space.
func (f *Surface) extent(space Space) (least, most Performance) {
	least = Performance{LatencyUs: math.Inf(1), Mops: math.Inf(1)}
	for at := range f.space.grid() {
		ci, si, bi, qi, _ := f.index(at)
		p := f.cells[f.cell(ci, si, bi)+qi]
		if !space.Contains(at) || math.IsInf(p.LatencyUs, 1) {
			continue
		}
		least.LatencyUs, least.Mops = min(least.LatencyUs, p.LatencyUs), min(least.Mops, p.Mops)
		most.LatencyUs, most.Mops = max(most.LatencyUs, p.LatencyUs), max(most.Mops, p.Mops)
	}
	return least, most
}

// cell returns the index in cells of the first queue depth of c, s, b.
func (f *Surface) cell(ci, si, bi int) int {
	return ((ci*len(f.s)+si)*len(f.b) + bi) * len(f.q)
}

// index returns the indices of a measured configuration on the axes.
func (f *Surface) index(at Config) (ci, si, bi, qi int, ok bool) {
	find := func(axis []int, v int) int {
		i := sort.SearchInts(axis, v)
		if i == len(axis) || axis[i] != v {
			ok = false
		}
		return i
	}
	ok = true
	ci, si, bi, qi = find(f.c, at.C), find(f.s, at.S), find(f.b, at.B), find(f.q, at.Q)
	return ci, si, bi, qi, ok
}

// fillMissing gives missing configurations the last throughput measured before them on any axis,
// so that they too have bounds of throughput.
func (f *Surface) fillMissing() {
	for ci := range f.c {
		for si := range f.s {
			for bi := range f.b {
				for qi := range f.q {
					p := &f.cells[f.cell(ci, si, bi)+qi]
					if !math.IsInf(p.LatencyUs, 1) || f.s[si] > f.c[ci] || f.s[si] == 0 && bi > 0 {
						continue
					}
					last := math.Inf(1)
					before := func(ci, si, bi, qi int) { last = min(last, f.cells[f.cell(ci, si, bi)+qi].Mops) }
					if qi > 0 {
						before(ci, si, bi, qi-1)
					}
					if bi > 0 {
						before(ci, si, bi-1, qi)
					}
					if si > 1 {
						before(ci, si-1, bi, qi)
					}
					if ci > 0 && f.c[ci-1] >= f.s[si] {
						before(ci-1, si, bi, qi)
					}
					if !math.IsInf(last, 1) {
						p.Mops = last
					}
				}
			}
		}
	}
}

// smooth raises latencies that are below their left neighbour by no more than noise, and
// reports whether no lower ones are left (A22). The left neighbour of a configuration in a
// subtree has the next smaller q; for the least q, the next smaller b; for b = 1, the next
// smaller c. With b = 1 the server threads do not matter.
func (f *Surface) smooth() bool {
	monotone := true
	raise := func(p *Performance, left float64) {
		switch {
		case p.LatencyUs >= left:
		case p.LatencyUs >= left*(1-noise):
			p.LatencyUs = left
		default:
			monotone = false
		}
	}
	least, ok := sort.Find(len(f.q), func(i int) int { return f.space.Opt - f.q[i] })
	if !ok {
		return false // the search begins between two measured depths
	}
	for ci := range f.c {
		for si := range f.s {
			if f.s[si] > f.c[ci] {
				continue
			}
			for bi := range f.b[:min(len(f.b), f.space.batches(f.s[si]))] {
				row := f.cells[f.cell(ci, si, bi):][:len(f.q)]
				switch {
				case bi > 0:
					raise(&row[least], f.cells[f.cell(ci, si, bi-1)+least].LatencyUs)
				case ci > 0: // the same for each s
					raise(&row[least], f.cells[f.cell(ci-1, 0, 0)+least].LatencyUs)
				}
				for qi := least + 1; qi < len(row); qi++ {
					raise(&row[qi], row[qi-1].LatencyUs)
				}
			}
		}
	}
	return monotone
}
