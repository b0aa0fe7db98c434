package store

import (
	"testing"
	"time"
)

func TestCalmSlicesCount(t *testing.T) {
	for _, tc := range []struct {
		name          string
		samples       []sample
		want          float64
		first, number int
	}{
		{"none", nil, 0, 0, 0},
		{"one", []sample{{5, 0.1}}, 5, 5, 1},
		{"all calm", []sample{{5, 1}, {9, 1}, {7, 0.96}, {8, 1}}, 8, 5, 4},
		{"disturbed ones do not count", []sample{{2, 0.5}, {9, 1}, {1, 0.2}, {7, 0.97}, {8, 1}}, 8, 7, 3},
		{"too few are calm", []sample{{2, 0.5}, {1, 0.2}, {9, 1}, {3, 0.6}}, 3, 2, 3},
	} {
		got := calmest(tc.samples)
		if median(got) != tc.want || len(got) != tc.number || len(got) > 0 && got[0].mops != float64(tc.first) {
			t.Errorf("%s: median %g of %v, want %g of %d", tc.name, median(got), got, tc.want, tc.number)
		}
	}
}

func TestSampleOfThreads(t *testing.T) {
	got := sampleOf([]tally{{2e6, time.Second, time.Second}, {3e6, 2 * time.Second, time.Second / 2}})
	if want := (sample{3.5, 0.5}); got != want {
		t.Errorf("two threads make %v, want %v", got, want)
	}
	if got := sampleOf([]tally{{1e6, time.Second, 0}}); got.share != 1 {
		t.Errorf("without processor times the share is %g, want 1", got.share)
	}
}
