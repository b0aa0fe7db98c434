package paper

import (
	"slices"
	"testing"
)

// The stores of a trial are loaded in alternating order, at no more loads.
func TestOrderOfStores(t *testing.T) {
	trial := func(name string) *storePlan {
		b := &Bench{Scale: tiny()}
		of := trialOf(name).(Stores)
		return &storePlan{trial: of, bench: b, records: of.records(b.Scale), members: of.members(of.Devices)}
	}
	names := func(p *storePlan, round int) (names []string) {
		for _, s := range p.trial.order(round) {
			names = append(names, s.Name)
		}
		return names
	}
	small := trial("small values")
	one, two := []string{uniformStore, zipfStore, tightStore}, []string{zipfStore, tightStore, uniformStore}
	for round, want := range [][]string{1: one, 2: two, 3: one, 4: two} {
		if got := names(small, round); round > 0 && !slices.Equal(got, want) {
			t.Errorf("round %d: %q", round, got)
		}
	}
	// The second round ends with the store that the third begins with.
	if first, second, third := small.loads(1), small.loads(2), small.loads(3); second.lasts != first.lasts || 2*third.lasts != first.lasts || first.name == second.name {
		t.Errorf("%+v, %+v, %+v", first, second, third)
	}
	// All of these stores are one, which loses memory.
	if fig19 := trial("fig19"); !slices.Equal(fig19.trial.order(1), fig19.trial.Stores) || !slices.Equal(fig19.trial.order(2), fig19.trial.Stores) {
		t.Errorf("%+v", fig19.trial.order(2))
	}
	for _, p := range []*storePlan{trial("fig19"), trial("fig18d")} {
		if first, second := p.loads(1), p.loads(2); first.lasts == 0 || second.lasts != first.lasts {
			t.Errorf("%s: %+v, then %+v", p.trial.Name, first, second)
		}
	}
}
