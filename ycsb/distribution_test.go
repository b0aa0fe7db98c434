package ycsb

import (
	"math"
	"slices"
	"testing"
)

// sequence draws n record numbers below records.
func (d Distribution) sequence(n int, records, seed int64) ([]uint32, error) {
	g, err := d.Generator(records, seed)
	if err != nil {
		return nil, err
	}
	sequence := make([]uint32, n)
	for i := range sequence {
		sequence[i] = g.Next()
	}
	return sequence, nil
}

// counts returns the number of occurrences of each record in a sequence.
func counts(t *testing.T, d Distribution, n int, records int64) []int {
	t.Helper()
	sequence, err := d.sequence(n, records, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(sequence) != n {
		t.Fatalf("sequence of %d numbers, want %d", len(sequence), n)
	}
	count := make([]int, records)
	for _, number := range sequence {
		if int64(number) >= records {
			t.Fatalf("record %d of %d", number, records)
		}
		count[number]++
	}
	return count
}

func TestUniformIsFlat(t *testing.T) {
	const n, records = 1_000_000, 1000
	for record, count := range counts(t, Uniform, n, records) {
		// Five standard deviations of a binomial distribution.
		if mean := float64(n / records); math.Abs(float64(count)-mean) > 5*math.Sqrt(mean) {
			t.Errorf("record %d was drawn %d times, want about %.0f", record, count, mean)
		}
	}
}

// TestZipfianHasAHead checks the hottest records. The scrambled generator draws from 10^10
// items, whose zeta is 26.469, and maps them onto the records.
func TestZipfianHasAHead(t *testing.T) {
	const n, records, zeta = 1_000_000, 100_000, 26.46902820178302
	count := counts(t, Zipfian, n, records)
	hottest := slices.Max(count)
	if want := n / zeta; math.Abs(float64(hottest)-want) > 0.05*want {
		t.Errorf("the hottest record was drawn %d times, want about %.0f", hottest, want)
	}
	sorted := slices.Sorted(slices.Values(count))
	slices.Reverse(sorted)
	head := 0
	for _, c := range sorted[:records/100] {
		head += c
	}
	if share := float64(head) / n; share < 0.30 || share > 0.50 {
		t.Errorf("the hottest hundredth of the records has %.2f of the draws", share)
	}
	// Scrambled: the ten hottest are not adjacent.
	var hot []int
	for record, c := range count {
		if c >= sorted[9] {
			hot = append(hot, record)
		}
	}
	if spread := slices.Max(hot) - slices.Min(hot); spread < records/10 {
		t.Errorf("the hottest records %v lie within %d numbers", hot, spread)
	}
}

func TestSequenceIsRepeatable(t *testing.T) {
	for _, d := range Distributions {
		a, errA := d.sequence(1000, 50, 7)
		b, errB := d.sequence(1000, 50, 7)
		c, errC := d.sequence(1000, 50, 8)
		if errA != nil || errB != nil || errC != nil {
			t.Fatal(errA, errB, errC)
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s: two sequences of one seed differ", d)
		}
		if slices.Equal(a, c) {
			t.Errorf("%s: sequences of two seeds are the same", d)
		}
	}
}

func TestGeneratorRefuses(t *testing.T) {
	for _, tc := range []struct {
		d       Distribution
		records int64
	}{{Uniform, 0}, {Zipfian, -1}, {Uniform, MaxRecords + 1}, {"normal", 1}} {
		if _, err := tc.d.Generator(tc.records, 1); err == nil {
			t.Errorf("%s.Generator(%d): no error", tc.d, tc.records)
		}
	}
	if one, err := Zipfian.sequence(3, 1, 1); err != nil || !slices.Equal(one, []uint32{0, 0, 0}) {
		t.Errorf("sequence over one record: %v, %v", one, err)
	}
}
