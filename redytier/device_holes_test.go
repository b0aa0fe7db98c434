package redytier

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// Compares spans with sets of numbers.
func TestSpans(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		const top = 30
		var s spans
		var model [top]bool
		draw := func() span {
			from := rapid.Int64Range(0, top).Draw(t, "from")
			return span{from, rapid.Int64Range(0, top).Draw(t, "to")}
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			x := draw()
			add := rapid.Bool().Draw(t, "add")
			old := slices.Clone(s)
			next := s.cut(x)
			if add {
				next = s.add(x)
			}
			for i := x.from; i < x.to; i++ {
				model[i] = add
			}
			if !slices.Equal(s, old) {
				t.Fatalf("%v became %v", old, s)
			}
			s = next
			size, last := int64(0), int64(-1)
			for _, y := range s {
				if y.from <= last || y.to <= y.from {
					t.Fatalf("%v after %v", s, x)
				}
				last = y.to
			}
			for i, in := range model {
				if in {
					size++
				}
				if one := (span{int64(i), int64(i) + 1}); s.overlap(one) != in || s.cover(one) != in {
					t.Fatalf("%v: %d is in it: %v", s, i, in)
				}
			}
			if s.size() != size {
				t.Fatalf("%v has size %d, want %d", s, s.size(), size)
			}
			x = draw()
			overlap, cover := false, true
			for i := x.from; i < x.to; i++ {
				overlap, cover = overlap || model[i], cover && model[i]
			}
			if s.overlap(x) != overlap || s.cover(x) != cover {
				t.Fatalf("%v and %v: overlap %v, cover %v", s, x, s.overlap(x), s.cover(x))
			}
		}
	})
}
