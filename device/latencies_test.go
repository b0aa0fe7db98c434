package device

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestLatencies(t *testing.T) {
	var l latencies
	if l.mean() != 0 || l.p99() != 0 {
		t.Errorf("of nothing the mean is %v, the percentile %v", l.mean(), l.p99())
	}
	var half, all latencies
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		d := time.Duration(r.IntN(2000)+1) * time.Microsecond
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
