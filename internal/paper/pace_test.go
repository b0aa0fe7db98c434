package paper

import (
	"testing"
	"time"
)

// What is left is foretold from what is over, of loading and of measuring each. A run
// that was interrupted loads again.
func TestPace(t *testing.T) {
	turns := func(loaded string, done ...bool) (all []plannedTurn) {
		for _, d := range done {
			l := load{name: loaded, lasts: 100 * time.Second}
			all = append(all, plannedTurn{turn{lasts: 10 * time.Second, loads: l}, d})
		}
		return all
	}
	all := []*planned{
		{name: "a", turns: append(turns("small", true, false, false), turns("large", false)...)},
		{name: "b", turns: turns("large", false)},
		{name: "c", turns: []plannedTurn{{turn{lasts: 10 * time.Second}, false}}},
	}
	p := newPace(all)
	step := func(want, took time.Duration, trial int, turn int) {
		t.Helper()
		if s := p.standing("", ""); s.Left.Round(time.Second) != want*time.Second {
			t.Errorf("after %d of %d turns %v left, want %d s", s.Done, s.Turns, s.Left, want)
		}
		if turn >= 0 {
			p.ended(all[trial].name, all[trial].turns[turn].turn, took*time.Second)
		}
	}
	step(350, 30, 0, 1) // five turns, three loads; this one loads five times as fast
	step(80, 20, 0, 2)  // four turns, two loads; this one lasts twice as long
	step(100, 40, 0, 3) // three turns of 20 s, two loads of 20 s
	step(60, 40, 1, 0)
	step(20, 20, 2, 0)
	step(0, 0, 0, -1)
	if p.done != 6 || p.turns != 6 {
		t.Errorf("%d of %d turns", p.done, p.turns)
	}
}
