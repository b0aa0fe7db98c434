package ycsb

import (
	"fmt"
	"math/rand"

	"github.com/pingcap/go-ycsb/pkg/generator"
)

// Distribution says which records an experiment asks for.
type Distribution string

const (
	// Uniform asks for every record equally often.
	Uniform Distribution = "uniform"
	// Zipfian asks for few records very often: Zipf's law with theta 0.99 over
	// records in scrambled order, as YCSB does it, so that hot records lie
	// anywhere in the log (A55).
	Zipfian Distribution = "zipfian"
)

// Distributions are all that there are.
var Distributions = []Distribution{Uniform, Zipfian}

// ParseDistribution reads a distribution's name.
func ParseDistribution(name string) (Distribution, error) {
	return oneOf("distribution", name, Distributions)
}

// oneOf returns the member of known with that name.
func oneOf[T ~string](what, name string, known []T) (T, error) {
	for _, k := range known {
		if string(k) == name {
			return k, nil
		}
	}
	return "", fmt.Errorf("unknown %s %q: want one of %v", what, name, known)
}

// MaxRecords is the most records that an experiment can have: a sequence holds
// their numbers in 32 bits.
const MaxRecords = 1 << 32

// Sequence draws n record numbers below records. The same seed gives the same
// sequence. The generators are YCSB's, which keep state without locks: this one
// is used by the calling goroutine alone.
func (d Distribution) Sequence(n int, records, seed int64) ([]uint32, error) {
	if n < 1 || records < 1 || records > MaxRecords {
		return nil, fmt.Errorf("ycsb: sequence of %d numbers below %d", n, records)
	}
	var next interface {
		Next(r *rand.Rand) int64
	}
	switch d {
	case Uniform:
		next = generator.NewUniform(0, records-1)
	case Zipfian:
		next = generator.NewScrambledZipfian(0, records-1, generator.ZipfianConstant)
	default:
		return nil, fmt.Errorf("ycsb: unknown distribution %q", d)
	}
	r := rand.New(rand.NewSource(seed))
	sequence := make([]uint32, n)
	for i := range sequence {
		// The scrambling hash has one input whose absolute value is negative;
		// the remainder keeps its result a record number all the same.
		sequence[i] = uint32(uint64(next.Next(r)) % uint64(records))
	}
	return sequence, nil
}
