package model

import (
	"fmt"
	"iter"
)

// Config is an RDMA configuration (table 2).
type Config struct {
	C int `json:"c"` // client threads, with a connection each
	S int `json:"s"` // server threads; 0: one-sided only
	B int `json:"b"` // requests in a batch; 1: one-sided
	Q int `json:"q"` // batches in flight on a connection
}

// String writes a configuration as c,s,b,q.
func (c Config) String() string { return fmt.Sprintf("%d,%d,%d,%d", c.C, c.S, c.B, c.Q) }

// alias returns the configuration that is carried out: batches of one are one-sided and use
// no server threads (A16).
func (c Config) alias() Config {
	if c.B == 1 {
		c.S = 0
	}
	return c
}

// MaxBatchBytes is the size of a transfer beyond which throughput does not improve (5.1).
const MaxBatchBytes = 4 << 10

// BatchLimit returns the largest batch of records of that size (R54).
func BatchLimit(recordSize int) int {
	return max(1, (MaxBatchBytes+recordSize-1)/recordSize)
}

// Space is a set of configurations: c from 1 to C, s from 0 to c, b from 1 to B, or 1 if s
// is 0, and q from Opt to Q, all inclusive (R52 to R56).
type Space struct {
	C   int // client cores
	B   int // largest batch
	Opt int // least queue depth (4.3)
	Q   int // the NIC's limit
}

// Check returns an error if the space is empty or too large.
func (s Space) Check() error {
	const most = 1 << 14
	if s.C < 1 || s.B < 1 || s.Opt < 1 || s.Q < s.Opt || max(s.C, s.B, s.Q) > most {
		return fmt.Errorf("model: space with c up to %d, b up to %d, q from %d to %d: want 1 to %d", s.C, s.B, s.Opt, s.Q, most)
	}
	return nil
}

// Contains reports whether a configuration belongs to the space.
func (s Space) Contains(c Config) bool {
	return c.C >= 1 && c.C <= s.C && c.S >= 0 && c.S <= c.C &&
		c.B >= 1 && c.B <= s.B && (c.S > 0 || c.B == 1) && c.Q >= s.Opt && c.Q <= s.Q
}

// Leaves returns the number of configurations (R58). The paper prints Q-opt as the number
// of queue depths; both ends are included, so there is one more.
func (s Space) Leaves() int64 {
	c, b, q := int64(s.C), int64(s.B), int64(s.Q-s.Opt+1)
	return (c*(c+3)/2*b - c*(b-1)) * q
}

// batches returns the largest batch with that many server threads.
func (s Space) batches(threads int) int {
	if threads == 0 {
		return 1
	}
	return s.B
}

// axis returns the measured values of a parameter: the powers of two, and the last value
// (R63, A19).
func axis(last int) []int {
	var values []int
	for v := 1; v < last; v *= 2 {
		values = append(values, v)
	}
	return append(values, last)
}

// grid returns the configurations that are measured, in the order of the search. Aliases
// occur once: configurations with b = 1 have no server threads. Depths are measured from 1,
// whatever the search begins with (A18).
func (s Space) grid() iter.Seq[Config] {
	return func(yield func(Config) bool) {
		threads := append([]int{0}, axis(s.C)...)
		for _, t := range threads {
			for _, c := range axis(s.C) {
				for _, b := range axis(s.B) {
					for _, q := range axis(s.Q) {
						if t > c || (t == 0) != (b == 1) {
							continue
						}
						if !yield(Config{c, t, b, q}) {
							return
						}
					}
				}
			}
		}
	}
}
