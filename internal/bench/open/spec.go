package open

import (
	"context"
	"fmt"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/units"
)

// Ending is how a store's process ended before an opening.
type Ending string

// The endings. All but Close are kills of the process.
const (
	Crash       Ending = "crash"       // after a commit; there is no copy of the index
	FoldOver    Ending = "fold-over"   // after a checkpoint of that kind
	Snapshot    Ending = "snapshot"    // after a checkpoint of that kind
	Incremental Ending = "incremental" // after a snapshot, updates of a hundredth of the records, and a checkpoint of that kind
	Close       Ending = "close"
)

// Endings are all of them, in the order in which one store can have them.
var Endings = []Ending{Crash, FoldOver, Snapshot, Incremental, Close}

// Spec says what to measure. Sizes are in bytes.
type Spec struct {
	Dir       string // of the store; empty at first
	Records   int64
	ValueSize int
	Memory    int64
	Endings   []Ending // in the order of [Endings]
	Rounds    int      // openings after each
	// Start starts a process that calls Live, and prints its result.
	Start func(ctx context.Context, l Life) (*bench.Child, error)
}

// minMemory is a memory that holds a few pages.
const minMemory = 1 << 20

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	switch {
	case s.Memory < minMemory:
		return fmt.Errorf("memory of %v: want at least %v", units.Size(s.Memory), units.Size(minMemory))
	case s.ValueSize < 8 || int64(s.ValueSize) > s.Memory/64:
		return fmt.Errorf("values of %d bytes in a memory of %v: want 8 bytes to a 64th of the memory", s.ValueSize, units.Size(s.Memory))
	case s.Records < 1 || s.Records > 1<<40:
		return fmt.Errorf("%d records: want 1 to %d", s.Records, int64(1)<<40)
	case s.Rounds < 1:
		return fmt.Errorf("%d rounds: want at least one", s.Rounds)
	}
	return nil
}

// files is the room that the store's files need: twice the log, the copies of the index, and the
// snapshots.
func (s *Spec) files() float64 {
	return float64(s.Records)*2*float64(16+record.KeySize+s.ValueSize) + float64(s.Records)*32 + 2*float64(s.Memory)
}

// Life is what one process does: it opens the store, which is new if Load is set, and does what
// comes before Ending, or nothing if that is empty. Then it reports, and waits for its end.
type Life struct {
	Dir       string `json:"dir"`
	Load      bool   `json:"load"`
	Ending    Ending `json:"ending"`
	Records   int64  `json:"records"`
	ValueSize int    `json:"value_size"`
	Memory    int64  `json:"memory"`
}

// Result is what a process reports of the opening.
type Result struct {
	Opened  float64 `json:"opened"`  // seconds
	Bytes   int64   `json:"bytes"`   // read from the disk meanwhile
	CPU     float64 `json:"cpu"`     // seconds of all processors
	Records int64   `json:"records"` // found in the part of the log that was read
	Index   bool    `json:"index"`   // a copy of the index was loaded
}

// check returns an error if an opening did not find what an ending leaves. Close leaves a copy of the
// index only if that is worth it.
func (r *Result) check(after Ending) error {
	if after != Close && r.Index != (after != Crash) {
		return fmt.Errorf("a copy of the index was loaded: %v", r.Index)
	}
	return nil
}
