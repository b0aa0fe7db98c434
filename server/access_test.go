package server

import (
	"testing"
	"time"

	"github.com/redykv/redykv/internal/controltoken"
)

// A server obeys one manager at a time, and none of a lower epoch than the highest that it
// has obeyed. It accepts another one when the present one has been silent for its bound, or
// when one of a higher epoch answers its call.
func TestAllegiance(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := allegiance{now: func() time.Time { return now }}
	run := func(epoch uint64, id string) controltoken.Incarnation {
		return controltoken.Incarnation{Epoch: epoch, ID: id, Bound: time.Minute}
	}
	for i, step := range []struct {
		after   time.Duration
		who     controltoken.Incarnation
		answers bool
		obeys   bool
	}{
		{0, run(5, "a"), false, true},                 // the first one
		{30 * time.Second, run(6, "b"), false, false}, // newer, but the present one is not silent
		{30 * time.Second, run(5, "a"), false, true},
		{59 * time.Second, run(6, "b"), false, false},
		{2 * time.Second, run(6, "b"), false, true}, // the present one is silent
		{0, run(5, "a"), false, false},
		{0, run(5, "a"), true, false},
		{time.Hour, run(5, "a"), false, false}, // older, however silent the present one is
		{0, run(5, "b"), false, false},
		{0, run(5, "a"), true, false},
		{0, run(6, "c"), true, true},   // of the same epoch, while the present one is silent
		{0, run(6, "b"), true, false},  // of the same epoch, while the present one is not silent
		{0, run(7, "c"), false, false}, // newer and calls, but the present one is not silent
		{0, run(7, "e"), true, true},   // newer, and answers
		{0, run(6, "c"), true, false},
		{0, run(7, "d"), true, false},
		{0, run(7, "d"), false, false},
		{59 * time.Second, run(7, "e"), false, true}, // the present one, by its call
		{59 * time.Second, run(7, "d"), false, false},
		{2 * time.Second, run(7, "d"), false, true}, // of the same epoch: the present one is silent
		{0, run(7, "e"), false, false},
	} {
		now = now.Add(step.after)
		if err := a.hear(step.who, step.answers); (err == nil) != step.obeys {
			t.Errorf("step %d: %v", i, err)
		}
	}
}
