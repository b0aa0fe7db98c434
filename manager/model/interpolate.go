package model

import "sort"

// corner is a measured value of c and s, and its weight in a place between.
type corner struct {
	ci, si int
	weight float64
}

// corners are the up to four that c and s lie between, without those of no weight:
// a missing corner must not spoil what it has no part in. ok is false beyond what
// was measured.
func (f *Surface) corners(c, s int) (_ [4]corner, n int, ok bool) {
	ci, t, ok := between(f.c, c)
	if !ok || s > c || s < 0 {
		return [4]corner{}, 0, false
	}
	si, u, _ := between(f.s, s)
	// The axis of s has 0 before that of c, and nothing lies between 0 and 1.
	all := [4]corner{
		{ci, si, (1 - t) * (1 - u)},
		{ci + 1, si, t * (1 - u)},
		{ci, si + 1, (1 - t) * u},
		{ci + 1, si + 1, t * u},
	}
	if ci+1 == si { // the cell on the diagonal: c is far enough, s is not beyond
		all = [4]corner{{ci, si, 1 - t}, {ci + 1, si, t - u}, {ci + 1, si + 1, u}}
	}
	var some [4]corner
	for _, k := range all {
		if k.weight > 0 {
			some[n] = k
			n++
		}
	}
	return some, n, true
}

// between finds the value of an axis that is v or next before it, and how far it is
// from there to the next, from 0 to below 1.
func between(axis []int, v int) (i int, part float64, ok bool) {
	if v < axis[0] || v > axis[len(axis)-1] {
		return 0, 0, false
	}
	if i = sort.SearchInts(axis, v); axis[i] == v {
		return i, 0, true
	}
	i--
	return i, float64(v-axis[i]) / float64(axis[i+1]-axis[i]), true
}

// mix is the place between a and b at that part of the way, which is below 1.
func mix(a, b Performance, part float64) Performance {
	if part == 0 {
		return a // whatever b is: it may be infinite
	}
	rest := 1 - part
	return Performance{
		LatencyUs: a.LatencyUs*rest + b.LatencyUs*part,
		Mops:      a.Mops*rest + b.Mops*part,
	}
}
