package missratio

import "math/bits"

// Histogram is the weight of accesses by the distance of their records from the log's tail, in
// bytes. The first bucket holds distances below 4 KiB; above, eight buckets double the distance.
type Histogram []float32

const (
	firstBits = 12 // the first bucket ends at 1<<firstBits
	splitBits = 3  // an octave has 1<<splitBits buckets
	octaves   = 36
	buckets   = 1 + octaves<<splitBits
)

// tally is a histogram that is being counted.
type tally [buckets]float64

// bucketOf returns the bucket of a distance.
func bucketOf(distance int64) int {
	if distance < 1<<firstBits {
		return 0
	}
	top := bits.Len64(uint64(distance)) - 1
	part := int(distance>>(top-splitBits)) & (1<<splitBits - 1)
	return min(1+(top-firstBits)<<splitBits+part, buckets-1)
}

// startOf returns the least distance of a bucket.
func startOf(bucket int) float64 {
	if bucket == 0 {
		return 0
	}
	octave, part := (bucket-1)>>splitBits, (bucket-1)&(1<<splitBits-1)
	return float64(int64(1<<splitBits+part) << (firstBits + octave - splitBits))
}

// Below returns the weight at distances below a limit. Within a bucket the weight is spread evenly.
func (h Histogram) Below(limit float64) float64 {
	sum := 0.0
	for b, weight := range h {
		start, end := startOf(b), startOf(b+1)
		if limit <= start {
			break
		}
		sum += float64(weight) * min((limit-start)/(end-start), 1)
	}
	return sum
}

// Sum returns the whole weight.
func (h Histogram) Sum() float64 {
	sum := 0.0
	for _, weight := range h {
		sum += float64(weight)
	}
	return sum
}

// histogram returns the tally without the zeros at its end.
func (t *tally) histogram() Histogram {
	n := buckets
	for n > 0 && t[n-1] == 0 {
		n--
	}
	h := make(Histogram, n)
	for b := range h {
		h[b] = float32(t[b])
	}
	return h
}

// decay halves the tally.
func (t *tally) decay() {
	for b := range t {
		t[b] /= 2
	}
}
