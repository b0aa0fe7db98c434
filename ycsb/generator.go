package ycsb

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
)

// Generator draws record numbers for one thread, in a few nanoseconds each. Its sequence does
// not repeat: a read cache would answer a short repeated sequence. It belongs to one
// goroutine.
type Generator struct {
	rng     rand.PCG
	records uint64
	zipf    *zipf // nil: uniform
}

// Generator returns a generator of numbers below records. The same seed gives the same
// numbers.
func (d Distribution) Generator(records, seed int64) (*Generator, error) {
	if records < 1 || records > MaxRecords {
		return nil, fmt.Errorf("ycsb: numbers below %d: want 1 to %d", records, int64(MaxRecords))
	}
	g := &Generator{rng: *rand.NewPCG(uint64(seed), 1), records: uint64(records)}
	switch d {
	case Uniform:
	case Zipfian:
		g.zipf = ycsbZipf()
	default:
		return nil, fmt.Errorf("ycsb: unknown distribution %q", d)
	}
	return g, nil
}

// Next draws a record number.
func (g *Generator) Next() uint32 {
	bits := g.rng.Uint64()
	if g.zipf != nil {
		bits = scramble(g.zipf.rank(bits, &g.rng))
	}
	return uint32(below(bits, g.records))
}

// below maps 64 random bits onto the numbers below n, evenly.
func below(random, n uint64) uint64 {
	high, _ := bits.Mul64(random, n)
	return high
}

// scramble maps ranks to 64-bit numbers. It is invertible, so no two ranks collide.
func scramble(rank uint64) uint64 {
	const a, b, c = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb
	rank = (rank + 1) * a
	rank = (rank ^ rank>>30) * b
	rank = (rank ^ rank>>27) * c
	return rank ^ rank>>31
}

// Parameters of YCSB's Zipf law: theta, and the number of items. Items are mapped onto the
// existing records, even if there are few.
const (
	zipfTheta = 0.99
	zipfItems = 10_000_000_000
)

// Each rank up to zipfExact is a class. Beyond, a class is a 64th of an octave, and its ranks
// are drawn evenly: their probabilities differ by 1.6 %.
const (
	zipfExact   = 64
	zipfClasses = 64
)

// zipf draws ranks from 0 by Zipf's law. It draws a class by Walker's alias method, then a
// rank of the class.
type zipf struct {
	classes []zipfClass
}

type zipfClass struct {
	first, size uint64 // the ranks of the class
	keep        uint64 // of 2^32: how often a draw of this class keeps it
	alias       uint32 // the class drawn otherwise
}

// rank draws a rank, from 64 random bits and rng.
func (z *zipf) rank(random uint64, rng *rand.PCG) uint64 {
	c := &z.classes[random>>32*uint64(len(z.classes))>>32]
	if random&math.MaxUint32 >= c.keep {
		c = &z.classes[c.alias]
	}
	if c.size == 1 {
		return c.first
	}
	return c.first + below(rng.Uint64(), c.size)
}

var ycsbZipf = sync.OnceValue(func() *zipf { return newZipf(zipfTheta, zipfItems) })

// newZipf divides items into classes and computes the share of each.
func newZipf(theta float64, items uint64) *zipf {
	z := new(zipf)
	var shares []float64
	add := func(first, end uint64, share float64) { // ranks from 0
		z.classes = append(z.classes, zipfClass{first: first, size: end - first})
		shares = append(shares, share)
	}
	for k := uint64(1); k <= min(zipfExact, items); k++ {
		add(k-1, k, math.Pow(float64(k), -theta))
	}
	integral := func(x float64) float64 { return math.Pow(x, 1-theta) / (1 - theta) }
	for k, width := uint64(zipfExact+1), uint64(1); k <= items; {
		if k > 2*zipfClasses*width {
			width *= 2
		}
		end := min(k+width, items+1)
		add(k-1, end-1, integral(float64(end)-0.5)-integral(float64(k)-0.5))
		k = end
	}
	z.alias(shares)
	return z
}

// alias builds Walker's table by Vose's method: each class below the average share is filled
// up from one above it.
func (z *zipf) alias(shares []float64) {
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	n := float64(len(shares))
	scaled := make([]float64, len(shares))
	var small, large []int
	for i, s := range shares {
		scaled[i] = s / sum * n
		if scaled[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		z.classes[s].keep, z.classes[s].alias = uint64(scaled[s]*(1<<32)), uint32(l)
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(small, large...) { // these shares are 1, except for rounding
		z.classes[i].keep = 1 << 32
	}
}
