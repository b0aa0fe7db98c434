package restart

import (
	"context"
	"fmt"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/redytier"
)

// Spec says what to measure.
type Spec struct {
	Transport string
	Memory    int64         // of the store, in bytes
	Times     int           // the records on Redy, in multiples of Memory
	ValueSize int           // bytes; keys have 8
	Depth     int           // pending reads
	Rounds    int           // warm and cold starts
	Before    time.Duration // of the measurement before each kill
	Patience  time.Duration // the longest time until a store is as fast as before
	Dir       string        // of the store; empty at first
	Manager   string        // URL
	// Start starts a process that calls Live, and prints its result.
	Start func(ctx context.Context, l Life) (*bench.Child, error)
}

// minMemory is a memory that holds a few pages.
const minMemory = 1 << 20

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	switch {
	case s.Memory < minMemory || s.Times < 1 || s.Times > 1000:
		return fmt.Errorf("memory of %d bytes, %d times as much on Redy: want %d bytes or more, 1 to 1000 times", s.Memory, s.Times, minMemory)
	case s.ValueSize < 8 || int64(s.ValueSize) > s.Memory/64:
		return fmt.Errorf("values of %d bytes in a memory of %d: want 8 bytes to a 64th of the memory", s.ValueSize, s.Memory)
	case s.Depth < 1 || s.Depth > redytier.MaxDepth:
		return fmt.Errorf("%d pending reads: want 1 to %d", s.Depth, redytier.MaxDepth)
	case s.Rounds < 1:
		return fmt.Errorf("%d rounds: want at least one", s.Rounds)
	case s.Before < window*sampleTime || s.Patience < window*sampleTime:
		return fmt.Errorf("%v before each kill, patience of %v: want %v or more", s.Before, s.Patience, window*sampleTime)
	}
	return nil
}

// records is the number of records whose log is as large as Memory and the cache together.
func (s *Spec) records() int64 {
	return s.Memory * int64(s.Times) / int64(8+record.KeySize+s.ValueSize)
}

// cache is the capacity of the cache: the log, and what the ring loses to the table of pieces and
// to whole segments.
func (s *Spec) cache() int64 { return s.Memory * int64(s.Times) * 9 / 8 }

// Start is what a process finds.
type Start string

// Starts.
const (
	New  Start = "new"  // an empty directory
	Warm Start = "warm" // a killed store, and its cache
	Cold Start = "cold" // a killed store, whose cache is gone
)

// Life is what one process does: it opens the store, reads until it is as fast as Target, and
// waits until all is on Redy. It measures its speed, reports, and reads until it is killed.
type Life struct {
	Start     Start         `json:"start"`
	Dir       string        `json:"dir"`
	Manager   string        `json:"manager"`
	Transport string        `json:"transport"`
	Memory    int64         `json:"memory"`
	Cache     int64         `json:"cache"`
	Records   int64         `json:"records"`
	ValueSize int           `json:"value_size"`
	Depth     int           `json:"depth"`
	Target    float64       `json:"target"` // Mop/s
	Before    time.Duration `json:"before"`
	Patience  time.Duration `json:"patience"`
}

// Result is what a process reports.
type Result struct {
	Opened  float64   `json:"opened"`   // seconds
	To90    float64   `json:"to_90"`    // seconds since the opening began; 0 of a new store
	HitRedy float64   `json:"hit_redy"` // share of Redy of the reads of devices until then
	Series  []float64 `json:"series"`   // Mop/s of each sample, from the end of the opening until then
	Mops    float64   `json:"mops"`     // at last
}
