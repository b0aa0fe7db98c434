package redytier

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// A clone and its origin change independently, and changed yields every region that differs.
func TestRegionListShares(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		var model [2][]uint64
		var lists [2]regionList
		step := func(of int) {
			switch l := &lists[of]; rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				n := rapid.IntRange(0, 5*blockRegions).Draw(t, "regions")
				l.resize(n)
				model[of] = append(model[of], make([]uint64, max(0, n-len(model[of])))...)[:n]
				model[of] = slices.Clip(model[of])
			case 1:
				lists[1], model[1] = lists[0].clone(), slices.Clone(model[0])
			default:
				if l.len() > 0 {
					i := rapid.IntRange(0, l.len()-1).Draw(t, "region")
					l.edit(i).epoch++
					model[of][i]++
				}
			}
		}
		check := func() {
			for of := range lists {
				var got []uint64
				for _, r := range lists[of].all() {
					got = append(got, r.epoch)
				}
				if !slices.Equal(got, model[of]) {
					t.Fatalf("list %d has %d, want %d", of, got, model[of])
				}
			}
			changed := slices.Collect(lists[1].changed(&lists[0]))
			for i := range model[1] {
				if (i >= len(model[0]) || model[0][i] != model[1][i]) && !slices.Contains(changed, i) {
					t.Fatalf("region %d differs and is not yielded", i)
				}
			}
		}
		for range rapid.IntRange(0, 10).Draw(t, "steps before a clone") {
			step(0)
		}
		lists[1], model[1] = lists[0].clone(), slices.Clone(model[0])
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			step(1)
			check()
		}
	})
}
