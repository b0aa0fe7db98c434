package ycsb

import "fmt"

// Distribution is the way in which an experiment chooses records.
type Distribution string

const (
	// Uniform chooses all records equally often.
	Uniform Distribution = "uniform"
	// Zipfian chooses few records very often: Zipf's law with theta 0.99 over records in
	// scrambled order, as in YCSB, so that hot records are spread over the log (A55).
	Zipfian Distribution = "zipfian"
)

// Distributions lists all of them.
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

// MaxRecords is the most records of an experiment: record numbers have 32 bits.
const MaxRecords = 1 << 32

// Sequence draws n record numbers below records. The same seed gives the same
// sequence.
func (d Distribution) Sequence(n int, records, seed int64) ([]uint32, error) {
	if n < 1 {
		return nil, fmt.Errorf("ycsb: sequence of %d numbers", n)
	}
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
