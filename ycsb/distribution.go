package ycsb

import "github.com/redykv/redykv/internal/bench"

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
	return bench.Parse("distribution", name, Distributions)
}

// MaxRecords is the most records of an experiment: record numbers have 32 bits.
const MaxRecords = 1 << 32
