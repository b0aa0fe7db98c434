package model

import "math"

// SLO is the required performance of reads and writes (3.3).
type SLO struct {
	LatencyUs float64 // maximum mean latency in microseconds; 0: any
	Mops      float64 // minimum throughput in millions a second; 0: any
}

// met reports whether a performance meets the SLO.
func (o SLO) met(p Performance) bool { return p.LatencyUs <= o.latency() && p.Mops >= o.Mops }

// latency returns the bound of the latency. It is always finite, so that a configuration
// that was not measured, whose latency is infinite, meets no SLO.
func (o SLO) latency() float64 {
	if o.LatencyUs == 0 {
		return math.MaxFloat64
	}
	return o.LatencyUs
}

// Found is the result of a search.
type Found struct {
	Config    Config
	Predicted Performance
	Leaves    int64 // configurations visited
	Exact     bool  // found without figure 10's pruning
}

// Search finds the first configuration of a space, in the order s, c, b, q, that is
// predicted to meet the SLO: none has fewer server threads (R66, R67). It walks the tree of
// figure 10. If measured latencies fall on the way down, the figure's pruning could miss
// the answer, and is left out (A22). If there is no such configuration, the error is an
// *[ImpossibleError].
func (f *Surface) Search(space Space, slo SLO) (Found, error) {
	if f.monotone && space.Opt == f.space.Opt {
		return f.search(space, slo, false)
	}
	return f.Exact(space, slo)
}

// Exact is Search without the pruning of figure 10: it finds the first configuration on any
// surface.
func (f *Surface) Exact(space Space, slo SLO) (Found, error) {
	return f.search(space, slo, true)
}

func (f *Surface) search(space Space, slo SLO, exact bool) (Found, error) {
	if err := space.Check(); err != nil {
		return Found{}, err
	}
	t := traversal{f: f, space: space, slo: slo, exact: exact, slice: f.newSlice(), row: make([]Performance, len(f.q))}
	if t.servers() != success {
		return Found{}, f.impossible(space, slo)
	}
	return Found{Config: t.found, Predicted: t.predicted, Leaves: t.leaves, Exact: exact}, nil
}

// status is the result of visiting a subtree.
type status int

const (
	invalid status = iota // its first leaf is too slow, and so are all to the right of it
	proceed               // CONTINUE: it has no answer, but one to the right of it may have
	success               // it has the answer
)

// traversal is the function Traverse of figure 10, a method for each level, with two
// additions. A subtree whose corners rule the answer out is not entered: its status is that
// of its first leaf. In an exact traversal no status is invalid.
type traversal struct {
	f     *Surface
	space Space
	slo   SLO
	exact bool

	slice *slice        // of the current c and s
	row   []Performance // of the current b

	found     Config
	predicted Performance
	leaves    int64
}

// siblings is lines 15 to 26 of figure 10, for the children from first to last. The
// function visit returns the status of a child, and the last sibling that has the same
// status.
func siblings(first, last int, visit func(v int) (_ status, last int)) status {
	result := invalid
	for v := first; v <= last; v++ {
		got, end := visit(v)
		switch got {
		case success:
			return success
		case invalid:
			return result // prune the remaining children
		default:
			result = proceed
		}
		v = end
	}
	return result
}

// servers visits the root; its children are values of s.
func (t *traversal) servers() status {
	return siblings(0, t.space.C, func(s int) (status, int) { return t.clients(s), s })
}

// clients visits s; its children are values of c.
func (t *traversal) clients(s int) status {
	return siblings(max(1, s), t.space.C, func(c int) (status, int) { return t.batches(c, s), c })
}

// batches visits c under s; its children are values of b.
func (t *traversal) batches(c, s int) status {
	if !t.slo.met(t.f.bestAt(c, s)) {
		return t.subtree(t.f.At(Config{c, s, 1, t.space.Opt}))
	}
	t.slice.at(c, s)
	last := t.space.batches(s)
	var cell cell
	return siblings(1, last, func(b int) (status, int) {
		if b > cell.end {
			cell = t.slice.cell(b, last, t.space.Opt, t.slo.met)
		}
		if cell.hopeful {
			return t.depths(Config{c, s, b, t.space.Opt}), b
		}
		// The first leaves of the children up to end lie on a line: if those at both ends
		// are fast enough, all are.
		got := t.subtree(t.first(b))
		if got == proceed && t.subtree(t.first(cell.end)) == proceed {
			return proceed, cell.end
		}
		return got, b
	})
}

// depths visits b; its children are values of q, each with one leaf.
func (t *traversal) depths(at Config) status {
	if !t.slice.row(at.B, t.row) {
		return t.subtree(unknown)
	}
	return siblings(t.space.Opt, t.space.Q, func(q int) (status, int) {
		at.Q = q
		return t.leaf(at), q
	})
}

// leaf is lines 8 to 13 of figure 10.
func (t *traversal) leaf(at Config) status {
	p := t.f.depth(t.row, at.Q)
	t.leaves++
	if t.slo.met(p) {
		t.found, t.predicted = at, p
		return success
	}
	return t.miss(p)
}

// miss returns the status of a leaf that does not meet the SLO.
func (t *traversal) miss(p Performance) status {
	if !t.exact && p.LatencyUs > t.slo.latency() {
		return invalid
	}
	return proceed
}

// subtree returns the status of a subtree without an answer, whose first leaf is p.
func (t *traversal) subtree(p Performance) status {
	t.leaves++
	return t.miss(p)
}

// first returns the first leaf under a b of the slice.
func (t *traversal) first(b int) Performance {
	if !t.slice.row(b, t.row) {
		return unknown
	}
	return t.f.depth(t.row, t.space.Opt)
}
