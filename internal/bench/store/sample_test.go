package store

import (
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
)

func TestCalmSlicesCount(t *testing.T) {
	for _, tc := range []struct {
		name          string
		samples       [][2]float64 // Mops, CPUShare
		want          float64
		first, number int
	}{
		{"one", [][2]float64{{5, 0.1}}, 5, 5, 1},
		{"all calm", [][2]float64{{5, 1}, {9, 1}, {7, 0.96}, {8, 1}}, 7.5, 5, 4},
		{"disturbed ones do not count", [][2]float64{{2, 0.5}, {9, 1}, {1, 0.2}, {7, 0.97}, {8, 1}}, 8, 7, 3},
		{"too few are calm", [][2]float64{{2, 0.5}, {1, 0.2}, {9, 1}, {3, 0.6}}, 3, 2, 3},
	} {
		var samples []bench.Sample
		for _, s := range tc.samples {
			samples = append(samples, bench.Sample{Mops: s[0], CPUShare: s[1]})
		}
		got := calmest(samples)
		if medianMops(got) != tc.want || len(got) != tc.number || got[0].Mops != float64(tc.first) {
			t.Errorf("%s: median %g of %v, want %g of %d", tc.name, medianMops(got), got, tc.want, tc.number)
		}
	}
}

func TestSampleOfThreads(t *testing.T) {
	got := sampleOf([]tally{{2e6, time.Second, time.Second}, {3e6, 2 * time.Second, time.Second / 2}}, 2)
	if want := (bench.Sample{Operations: 5e6, Seconds: 2, Mops: 3.5, CPUShare: 0.5}); got != want {
		t.Errorf("two threads make %v, want %v", got, want)
	}
	if got := sampleOf([]tally{{1e6, time.Second, 0}}, 1); got.CPUShare != 1 {
		t.Errorf("without processor times the share is %g, want 1", got.CPUShare)
	}
}
