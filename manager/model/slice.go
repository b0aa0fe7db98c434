package model

// slice holds a surface's values for one c and s, at the measured values of b and q.
type slice struct {
	f     *Surface
	nodes []Performance // by b and q; with s = 0 only b = 1
}

func (f *Surface) newSlice() *slice {
	return &slice{f: f, nodes: make([]Performance, len(f.b)*len(f.q))}
}

// at moves the slice to c and s. It returns false outside the measured range.
func (v *slice) at(c, s int) bool {
	f := v.f
	corners, n, ok := f.corners(c, s)
	if !ok {
		return false
	}
	first := corners[0]
	for i, p := range f.cells[f.cell(first.ci, first.si, 0):][:len(v.nodes)] {
		v.nodes[i] = Performance{p.LatencyUs * first.weight, p.Mops * first.weight}
	}
	for _, k := range corners[1:n] {
		for i, p := range f.cells[f.cell(k.ci, k.si, 0):][:len(v.nodes)] {
			v.nodes[i].LatencyUs += p.LatencyUs * k.weight
			v.nodes[i].Mops += p.Mops * k.weight
		}
	}
	return true
}

// bestAt returns a bound of what any configuration of c and s achieves.
func (f *Surface) bestAt(c, s int) Performance {
	corners, n, ok := f.corners(c, s)
	best := unknown
	if ok {
		for _, k := range corners[:n] {
			best = best.better(f.best[k.ci*len(f.s)+k.si])
		}
	}
	return best.bound()
}

// row fills row with the values for b, at the measured values of q. It returns false
// outside the measured range.
func (v *slice) row(b int, row []Performance) bool {
	bi, part, ok := between(v.f.b, b)
	if !ok {
		return false
	}
	n := len(row)
	here := v.nodes[bi*n:][:n]
	if part == 0 {
		copy(row, here)
		return true
	}
	for qi, next := range v.nodes[(bi+1)*n:][:n] {
		row[qi] = mix(here[qi], next, part)
	}
	return true
}

// cell is a run of batch sizes up to end. It is hopeful if one of them may be wanted.
type cell struct {
	end     int
	hopeful bool
}

// cell returns the run of batch sizes that begins at b, which is a measured value or beyond
// all of them. It ends before the next measured value, or at last. No configuration in it
// is better than the corners around it, so it is hopeful if the best of some adjacent
// corners is wanted.
func (v *slice) cell(b, last, opt int, wanted func(Performance) bool) cell {
	f := v.f
	bi, _, ok := between(f.b, b)
	if !ok {
		return cell{end: last}
	}
	next, end := bi, b
	if bi+1 < len(f.b) && b < last {
		if end = min(f.b[bi+1]-1, last); end > b {
			next++
		}
	}
	n := len(f.q)
	here, there := v.nodes[bi*n:][:n], v.nodes[next*n:][:n]
	for qi := range n {
		qj := min(qi+1, n-1)
		if f.q[qj] >= opt && wanted(bestOf(here[qi:qj+1]).better(bestOf(there[qi:qj+1])).bound()) {
			return cell{end: end, hopeful: true}
		}
	}
	return cell{end: end}
}

// At predicts the performance of a configuration. Outside the measured range the latency is
// infinite.
func (f *Surface) At(at Config) Performance {
	v := f.newSlice()
	row := make([]Performance, len(f.q))
	if at.S == 0 && at.B != 1 || !v.at(at.C, at.S) || !v.row(at.B, row) {
		return unknown
	}
	return f.depth(row, at.Q)
}

// depth returns a row's value for a queue depth.
func (f *Surface) depth(row []Performance, q int) Performance {
	qi, part, ok := between(f.q, q)
	switch {
	case !ok:
		return unknown
	case part == 0:
		return row[qi]
	}
	return mix(row[qi], row[qi+1], part)
}
