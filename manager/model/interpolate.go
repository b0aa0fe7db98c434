package model

import "sort"

// corner is a measured value of c and s, and its weight in the interpolation.
type corner struct {
	ci, si int
	weight float64
}

// corners returns the up to four corners around c and s that have a weight. Those of weight
// 0 are left out, so that a missing corner does not matter there. It returns false outside
// the measured range.
func (f *Surface) corners(c, s int) (_ [4]corner, n int, ok bool) {
	ci, t, ok := between(f.c, c)
	if !ok || s > c || s < 0 {
		return [4]corner{}, 0, false
	}
	si, u, _ := between(f.s, s)
	// The axis of s is that of c with 0 in front, and no value lies between 0 and 1.
	all := [4]corner{
		{ci, si, (1 - t) * (1 - u)},
		{ci + 1, si, t * (1 - u)},
		{ci, si + 1, (1 - t) * u},
		{ci + 1, si + 1, t * u},
	}
	if ci+1 == si { // the cell on the diagonal, where s <= c leaves three corners
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

// between returns the index of the largest value of an axis that is not above v, and the
// fraction of the way from there to the next, at least 0 and below 1.
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

// mix interpolates between a and b at the fraction part, which is below 1.
func mix(a, b Performance, part float64) Performance {
	if part == 0 {
		return a // b may be infinite
	}
	rest := 1 - part
	return Performance{
		LatencyUs: a.LatencyUs*rest + b.LatencyUs*part,
		Mops:      a.Mops*rest + b.Mops*part,
	}
}
