package bench

import (
	"cmp"
	"math"
	"slices"
)

// Quantile returns the least of the values that at least that part of them does not
// exceed; NaN if there are none.
func Quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(values))[rank(len(values), part)]
}

// Median returns the middle value, or the mean of the two in the middle; NaN if there are
// none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Mean returns the mean; NaN if there are no values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// MedianBy returns the element with the median value, or with the lower of the two in the
// middle. There is at least one.
func MedianBy[T any](all []T, value func(*T) float64) T {
	return sortedBy(all, value)[rank(len(all), 0.5)]
}

// SecondFastest returns the sample with the second highest throughput: neighbours only slow
// a slice down, and the fastest may be luck.
func SecondFastest(all []Sample) Sample {
	return sortedBy(all, func(s *Sample) float64 { return s.Mops })[max(0, len(all)-2)]
}

// rank returns the index of a quantile among n sorted values.
func rank(n int, part float64) int { return max(0, int(math.Ceil(part*float64(n)))-1) }

func sortedBy[T any](all []T, value func(*T) float64) []T {
	return slices.SortedStableFunc(slices.Values(all), func(a, b T) int { return cmp.Compare(value(&a), value(&b)) })
}
