package ycsb

import (
	"errors"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
)

func TestHistoryNote(t *testing.T) {
	from := time.Unix(1000, 0)
	to := from.Add(5 * time.Second)
	at := func(seconds float64) time.Time { return from.Add(time.Duration(seconds * float64(time.Second))) }
	lost := device.TierEvent{Tier: 0, Name: "redy", Err: errors.New("peer disconnected")}
	back := device.TierEvent{Tier: 0, Name: "redy"}
	next := func(int) string { return "the ssd" }
	for _, tc := range []struct {
		name   string
		events []pastEvent
		want   string
	}{
		{"nothing", nil, ""},
		{"lost during", []pastEvent{{at(3.1), lost}}, "redy lost after 3.1 s (peer disconnected); reads went on from the ssd"},
		{"lost before", []pastEvent{{at(-2), lost}}, "redy was lost before this run (peer disconnected); reads came from the ssd"},
		{"back before", []pastEvent{{at(-2), lost}, {at(-1), back}}, ""},
		{"lost afterwards", []pastEvent{{at(6), lost}}, ""},
		{"lost and back", []pastEvent{{at(1), lost}, {at(2.5), back}},
			"redy lost after 1.0 s (peer disconnected); reads went on from the ssd; redy back after 2.5 s"},
		{"lost before, back during", []pastEvent{{at(-1), lost}, {at(2), back}},
			"redy was lost before this run (peer disconnected); reads came from the ssd; redy back after 2.0 s"},
	} {
		h := &history{events: tc.events}
		if got := h.note(from, to, next); got != tc.want {
			t.Errorf("%s:\n got %q\nwant %q", tc.name, got, tc.want)
		}
	}
}
