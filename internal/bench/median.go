package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
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

// MedianSample returns the slice that counts: the one with the median throughput.
func MedianSample(all []Sample) Sample {
	return MedianBy(all, func(s *Sample) float64 { return s.Mops })
}

// RatioOfRounds returns the median, over the rounds, of the ratio of two cells' figures in the same
// round; 0 if one of the cells was not measured. Figures of different rounds are not compared: in
// one of them a neighbour may have slowed the machine.
func RatioOfRounds[T any](over, under []T, figure func(*T) float64) float64 {
	return RatioOfFigures(over, under, figure, figure)
}

// RatioOfFigures is RatioOfRounds for two figures: one of the cell that is compared, and one of the
// other.
func RatioOfFigures[T any](over, under []T, figure, base func(*T) float64) float64 {
	var ratios []float64
	for i := range min(len(over), len(under)) {
		if b := base(&under[i]); b > 0 {
			ratios = append(ratios, figure(&over[i])/b)
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	return Median(ratios)
}

// Throughput is a figure of RatioOfRounds.
func Throughput(s *Sample) float64 { return s.Mops }

// OfSlices says, in the head of a table, what its figures are.
func OfSlices(duration time.Duration) string {
	return fmt.Sprintf("cells: %v each in %d slices, alternately; figures of the slice with the median throughput, ratios the medians of the slices' ratios", duration, Rounds)
}

// rank returns the index of a quantile among n sorted values.
func rank(n int, part float64) int { return max(0, int(math.Ceil(part*float64(n)))-1) }

func sortedBy[T any](all []T, value func(*T) float64) []T {
	return slices.SortedStableFunc(slices.Values(all), func(a, b T) int { return cmp.Compare(value(&a), value(&b)) })
}
