package server

import (
	"testing"
	"time"

	"github.com/redykv/redykv/internal/controltoken"
)

// A server obeys one manager at a time: another one when the present one has been silent
// for its bound, an older one only if it answers the server's own call.
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
		{30 * time.Second, run(6, "b"), false, false}, // newer, but the first is there
		{30 * time.Second, run(5, "a"), false, true},
		{59 * time.Second, run(6, "b"), false, false},
		{2 * time.Second, run(6, "b"), false, true}, // now it has been silent
		{0, run(5, "a"), false, false},
		{time.Hour, run(5, "a"), false, false}, // an older one that calls
		{0, run(6, "c"), true, true},           // as old as the one that is silent
		{0, run(6, "b"), true, false},          // of which one is obeyed
		{0, run(7, "d"), false, false},         // a copy that calls
		{0, run(7, "e"), true, true},           // a newer one in its place
		{0, run(6, "c"), true, false},          //
		{time.Hour, run(7, "d"), false, true},  // of two copies, the one that is heard
		{time.Second, run(7, "e"), true, false},
		{58 * time.Second, run(2, "f"), true, false}, // no state, and a clock that went back
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
