package redytier

import "sort"

// span is the addresses from to to-1.
type span struct{ from, to int64 }

// spans is a set of addresses, as ascending spans that neither overlap nor touch.
// It is never changed: add and cut return another one.
type spans []span

// after is the number of the first span that ends behind addr.
func (s spans) after(addr int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].to > addr })
}

// overlap says whether an address of x is in the set.
func (s spans) overlap(x span) bool {
	i := s.after(x.from)
	return i < len(s) && s[i].from < x.to && x.from < x.to
}

// cover says whether all of x is in the set.
func (s spans) cover(x span) bool {
	i := s.after(x.from)
	return x.from >= x.to || i < len(s) && s[i].from <= x.from && x.to <= s[i].to
}

// add returns the set with x.
func (s spans) add(x span) spans {
	if x.from >= x.to {
		return s
	}
	i, k := s.after(x.from-1), s.after(x.to) // those before k that are not before i overlap or touch x
	if k < len(s) && s[k].from <= x.to {
		k++
	}
	if i < k {
		x = span{min(x.from, s[i].from), max(x.to, s[k-1].to)}
	}
	sum := make(spans, 0, len(s)+1)
	sum = append(append(sum, s[:i]...), x)
	return append(sum, s[k:]...)
}

// cut returns the set without x.
func (s spans) cut(x span) spans {
	if !s.overlap(x) {
		return s
	}
	rest := make(spans, 0, len(s)+1)
	for _, y := range s {
		if y.from < x.from {
			rest = append(rest, span{y.from, min(y.to, x.from)})
		}
		if y.to > x.to {
			rest = append(rest, span{max(y.from, x.to), y.to})
		}
	}
	return rest
}

// size is how many addresses are in the set.
func (s spans) size() int64 {
	var n int64
	for _, x := range s {
		n += x.to - x.from
	}
	return n
}
