package device

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Every time is in a bucket whose middle is within an eighth of it, and later ones are
// in later buckets.
func TestLatencyBuckets(t *testing.T) {
	last := 0
	for d := time.Duration(4); d < 1<<latencyBits; d += max(1, d/37) {
		b := latencyBucket(d)
		if b < last || b >= latencyBuckets {
			t.Fatalf("%v is in bucket %d, after %d", d, b, last)
		}
		last = b
		if off := latencyOf(b) - d; max(off, -off)*8 > d {
			t.Fatalf("%v is taken for %v", d, latencyOf(b))
		}
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 4: 0, 1 << 62: latencyBuckets - 1} {
		if b := latencyBucket(d); b != want {
			t.Errorf("%v is in bucket %d, want %d", d, b, want)
		}
	}
}

func TestLatencies(t *testing.T) {
	var l latencies
	if l.mean() != 0 || l.p99() != 0 {
		t.Errorf("of nothing the mean is %v, the percentile %v", l.mean(), l.p99())
	}
	var half, all latencies
	for i := range 1000 {
		d := time.Duration(rand.N(2000)+1) * time.Microsecond
		if i%100 == 0 {
			d = time.Second
		}
		half.add(d)
	}
	all.merge(&half)
	all.merge(&half)
	if all.n() != 2000 || all.mean() != half.mean() || all.p99() != half.p99() {
		t.Errorf("merged: %d, %v, %v; of each %v, %v", all.n(), all.mean(), all.p99(), half.mean(), half.p99())
	}
	if p := all.p99(); p > 2300*time.Microsecond || p < 1500*time.Microsecond {
		t.Errorf("99th percentile %v: one in a hundred is 1 s, the others are spread up to 2 ms", p)
	}
}
