package durable

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestRun: each cell has a row with its figures, ratios where there is something to compare with.
func TestRun(t *testing.T) {
	spec := Spec{Dir: t.TempDir(), Records: 100, ValueSize: 100, Goroutines: []int{1, 3}, Duration: 90 * time.Millisecond, Pebble: true}
	r, err := Run(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []cell
	for _, row := range r.Rows {
		got = append(got, cell{row.Store, row.Goroutines})
		if row.Writes <= 0 || row.P50Us <= 0 || row.P99Us < row.P50Us || row.WritesLess > row.Writes || row.WritesMore < row.Writes {
			t.Errorf("%+v", row)
		}
		if (row.OverPebble > 0) != (row.Store == Redykv) || (row.OverDisk > 0) != (row.Store != Disk && row.Goroutines == 1) {
			t.Errorf("ratios of %+v", row)
		}
	}
	if len(got) != 5 {
		t.Errorf("cells %v", got)
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "fdatasync") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

func TestCheck(t *testing.T) {
	good := Spec{Records: 1, ValueSize: 8, Goroutines: []int{1}, Duration: time.Second}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"value size":         func(s *Spec) { s.ValueSize = 7 },
		"0 records":          func(s *Spec) { s.Records = 0 },
		"records of":         func(s *Spec) { s.Records = 1 << 40 },
		"duration":           func(s *Spec) { s.Duration = 0 },
		"no number":          func(s *Spec) { s.Goroutines = nil },
		"0 goroutines":       func(s *Spec) { s.Goroutines = []int{0} },
		"1000000 goroutines": func(s *Spec) { s.Goroutines = []int{1, 1000000} },
	} {
		s := good
		change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
