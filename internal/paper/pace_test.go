package paper

import (
	"testing"
	"time"
)

// The remaining time is estimated from finished turns, for loading and measuring separately.
// An interrupted run loads again.
func TestPace(t *testing.T) {
	turns := func(loaded string, done ...bool) (all []turn) {
		for _, d := range done {
			l := load{name: loaded, lasts: 100 * time.Second}
			all = append(all, turn{lasts: 10 * time.Second, loads: l, done: d})
		}
		return all
	}
	all := []*plan{
		{name: "a", turns: append(turns("small", true, false, false), turns("large", false)...)},
		{name: "b", turns: turns("large", false)},
		{name: "c", turns: []turn{{lasts: 10 * time.Second}}},
	}
	p := newPace(all)
	step := func(want, took time.Duration, trial int, turn int) {
		t.Helper()
		if s := p.standing("", ""); s.Left.Round(time.Second) != want*time.Second {
			t.Errorf("after %d of %d turns %v left, want %d s", s.Done, s.Turns, s.Left, want)
		}
		if turn >= 0 {
			p.ended(all[trial].name, all[trial].turns[turn], took*time.Second)
		}
	}
	step(350, 30, 0, 1) // five turns and three loads remain; this turn loads five times as fast as planned
	step(80, 20, 0, 2)  // four turns and two loads remain; this turn lasts twice as long as planned
	step(100, 40, 0, 3) // three turns of 20 s and two loads of 20 s remain
	step(60, 40, 1, 0)
	step(20, 20, 2, 0)
	step(0, 0, 0, -1)
	if p.done != 6 || p.turns != 6 {
		t.Errorf("%d of %d turns", p.done, p.turns)
	}
}
