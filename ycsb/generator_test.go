package ycsb

import (
	"math"
	"testing"
)

// TestZipfRanks compares ranks with the sums of the terms of Zipf's law with theta 0.99 (R90).
func TestZipfRanks(t *testing.T) {
	const items, draws = 100_000, 2_000_000
	z := newZipf(zipfTheta, items)
	g, err := Uniform.Generator(1, 5)
	if err != nil {
		t.Fatal(err)
	}
	zeta := 0.0
	for k := 1; k <= items; k++ {
		zeta += math.Pow(float64(k), -zipfTheta)
	}
	count := make([]int, items)
	for range draws {
		rank := z.rank(g.rng.Uint64(), &g.rng)
		if rank >= items {
			t.Fatalf("rank %d of %d", rank, items)
		}
		count[rank]++
	}
	for _, r := range [][2]int{{0, 1}, {1, 2}, {9, 10}, {0, 64}, {64, 128}, {100, 110}, {1000, 1100}, {0, 1000}, {5000, 50_000}, {99_000, items}} {
		want, got := 0.0, 0
		for k := r[0]; k < r[1]; k++ {
			want += math.Pow(float64(k+1), -zipfTheta) / zeta * draws
			got += count[k]
		}
		// Five standard deviations, and the rounding of the classes.
		if math.Abs(float64(got)-want) > 5*math.Sqrt(want)+0.005*want {
			t.Errorf("ranks %d to %d were drawn %d times, want about %.0f", r[0], r[1]-1, got, want)
		}
	}
	// The classes cover each rank once.
	next := uint64(0)
	for _, c := range ycsbZipf().classes {
		if c.first != next || c.size < 1 {
			t.Fatalf("class %+v after rank %d", c, next)
		}
		next += c.size
	}
	if next != zipfItems {
		t.Errorf("%d ranks, want %d", next, uint64(zipfItems))
	}
}

func BenchmarkGenerator(b *testing.B) {
	for _, d := range Distributions {
		b.Run(string(d), func(b *testing.B) {
			g, err := d.Generator(250_000_000, 1)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				g.Next()
			}
		})
	}
}
