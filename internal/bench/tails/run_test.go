package tails

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRun: each event happens while the loop runs, and has a row with its figures.
func TestRun(t *testing.T) {
	s := Spec{Dir: t.TempDir(), Records: 20_000, ValueSize: 8, Events: Events, Duration: 100 * time.Millisecond, Rate: 20_000}
	r, err := Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []Event
	for _, row := range r.Rows {
		got = append(got, row.Event)
		if row.Ops == 0 || row.P50Us <= 0 || row.P99Us < row.P50Us || row.P999Us < row.P99Us || row.MaxUs < row.P999Us*0.99 {
			t.Errorf("%+v", row)
		}
		if compared := !slices.Contains([]Event{Machine, Quiet}, row.Event); (row.OverQuiet > 0) != compared || (row.Happened > 0) != compared {
			t.Errorf("%s happened %d times, %v times as long as quiet", row.Event, row.Happened, row.OverQuiet)
		}
	}
	if want := append([]Event{Machine, Quiet, Quiet}, Events...); !slices.Equal(got, want) {
		t.Errorf("rows of %v, want %v", got, want)
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "from when operations were due") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// TestRate: without a rate the loop has half of what it does at most.
func TestRate(t *testing.T) {
	s := Spec{Dir: t.TempDir(), Records: 1000, ValueSize: 24, Events: []Event{Commit}, Duration: 50 * time.Millisecond}
	r, err := Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Spec.Rate <= 0 || len(r.Rows) != 3 {
		t.Errorf("%v operations a second, %d rows", r.Spec.Rate, len(r.Rows))
	}
}

// TestStall: a stall delays what was due meanwhile, too.
func TestStall(t *testing.T) {
	l, err := newLoop(0, 1, 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	stalled := false
	err = l.run(t.Context(), 1e6, 10*time.Millisecond, func() bool {
		if !stalled {
			stalled = true
			time.Sleep(20 * time.Millisecond)
			return false
		}
		return true
	})
	if err != nil || l.latencies.Max() < int64(15*time.Millisecond) || l.ops < 2 {
		t.Errorf("%d operations, at most %v, %v", l.ops, time.Duration(l.latencies.Max()), err)
	}
}

func TestCheck(t *testing.T) {
	good := Spec{Records: 1000, ValueSize: 8, Events: []Event{Commit}, Duration: time.Second}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"value size":            func(s *Spec) { s.ValueSize = 7 },
		"0 records":             func(s *Spec) { s.Records = 0 },
		"need about":            func(s *Spec) { s.Records, s.ValueSize = 1<<28, 1<<20 },
		"duration":              func(s *Spec) { s.Duration = 0 },
		"rate of -1":            func(s *Spec) { s.Rate = -1 },
		"no event":              func(s *Spec) { s.Events = nil },
		`unknown event "quiet"`: func(s *Spec) { s.Events = []Event{Quiet} },
		"given twice":           func(s *Spec) { s.Events = []Event{Commit, Commit} },
	} {
		s := good
		change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
