package durable

import (
	"fmt"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// Subject is what is measured.
type Subject string

// The subjects.
const (
	Redykv Subject = "redykv"
	// Pebble syncs its log for each write, or for several that wait at the same time.
	Pebble Subject = "pebble"
	// Disk writes 4 KiB over others of a file, and calls fdatasync.
	Disk Subject = "disk"
)

const (
	rounds        = 9
	maxGoroutines = 1 << 12
	diskBlock     = 4 << 10
	diskFile      = 4 << 20
	// memory is that of each store: it holds all records.
	memory = 64 << 20
	// maxRecordBytes bounds the records, so that they fit.
	maxRecordBytes = memory / 4
)

// Spec says what to measure. Sizes are in bytes.
type Spec struct {
	Dir        string // an existing directory
	Records    int64
	ValueSize  int
	Goroutines []int         // each has one write at a time
	Duration   time.Duration // of each cell, all rounds together
	Pebble     bool
}

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	switch {
	case s.ValueSize < 8 || s.ValueSize > maxRecordBytes:
		return fmt.Errorf("value size of %d bytes: want 8 to %v", s.ValueSize, units.Size(maxRecordBytes))
	case s.Records < 1 || s.Records > int64(maxRecordBytes/(ycsb.KeySize+s.ValueSize)):
		return fmt.Errorf("%d records of %d bytes: want at least 1, and %v at most", s.Records, ycsb.KeySize+s.ValueSize, units.Size(maxRecordBytes))
	case s.Duration < bench.MinDuration:
		return fmt.Errorf("duration of %v: want at least %v", s.Duration, bench.MinDuration)
	case len(s.Goroutines) == 0:
		return fmt.Errorf("no number of goroutines")
	}
	for _, n := range s.Goroutines {
		if n < 1 || n > maxGoroutines {
			return fmt.Errorf("%d goroutines: want 1 to %d", n, maxGoroutines)
		}
	}
	return nil
}

// subjects are those to measure.
func (s *Spec) subjects() []Subject {
	if s.Pebble {
		return []Subject{Redykv, Pebble, Disk}
	}
	return []Subject{Redykv, Disk}
}
