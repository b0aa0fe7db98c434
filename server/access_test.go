package server

import (
	"testing"
	"time"

	"github.com/redykv/redykv/internal/controltoken"
)

// A server obeys one manager at a time. It accepts another one when the current one has been
// silent for its bound, and an older one only if that answers the server's own call.
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
		{30 * time.Second, run(6, "b"), false, false}, // newer, but the current one is not silent
		{30 * time.Second, run(5, "a"), false, true},
		{59 * time.Second, run(6, "b"), false, false},
		{2 * time.Second, run(6, "b"), false, true}, // the current one is silent
		{0, run(5, "a"), false, false},
		{time.Hour, run(5, "a"), false, false}, // older, and it calls
		{0, run(6, "c"), true, true},           // of equal age, while the current one is silent
		{0, run(6, "b"), true, false},          // of equal age, while the current one is not silent
		{0, run(7, "d"), false, false},         // newer and calls, but the current one is not silent
		{0, run(7, "e"), true, true},           // newer, and answers
		{0, run(6, "c"), true, false},
		{time.Hour, run(7, "d"), false, true}, // the current one is silent
		{time.Second, run(7, "e"), true, false},
		{58 * time.Second, run(2, "f"), true, false}, // older after losing its state, with a clock that went back
		{2 * time.Second, run(2, "f"), true, true},
		{0, run(2, "f"), false, true},
		{0, run(7, "d"), false, false},
	} {
		now = now.Add(step.after)
		if err := a.hear(step.who, step.answers); (err == nil) != step.obeys {
			t.Errorf("step %d: %v", i, err)
		}
	}
}
