package tails

import (
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// Event is what a store does while it is measured.
type Event string

// The events. An event is repeated as long as a slice lasts.
const (
	Machine    Event = "machine"    // there is no store
	Quiet      Event = "quiet"      // nothing
	Checkpoint Event = "checkpoint" // a snapshot
	Compaction Event = "compaction" // all of the log that is read-only
	Growth     Event = "growth"     // another thread inserts seven times as many records, once
	Commit     Event = "commit"     // a commit ten times a second
	Flush      Event = "flush"      // another thread inserts records, so that the log leaves memory
	Resize     Event = "resize"     // half the memory, and all of it again, ten times a second
)

// Events lists those that can be chosen.
var Events = []Event{Checkpoint, Compaction, Growth, Commit, Flush, Resize}

const (
	rounds = 5
	// hotShare is the part of the records, the last ones that were loaded, that is read and
	// upserted while the log leaves memory. Each is written again long before its page leaves.
	hotShare = 256
	// growth is how many times as many records there are in the end.
	growth = 8
	// longest is how long a slice waits for its event.
	longest = time.Minute
)

// Spec says what to measure. Sizes are in bytes.
type Spec struct {
	Dir       string // an existing directory
	Records   int64
	ValueSize int
	Events    []Event
	Duration  time.Duration // of each cell, all rounds together
	Rate      float64       // operations a second; 0: half of the most
}

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	switch {
	case s.ValueSize < 8 || s.ValueSize > ycsb.MaxValueSize:
		return fmt.Errorf("value size of %d bytes: want 8 to %v", s.ValueSize, units.Size(ycsb.MaxValueSize))
	case s.Records < hotShare || s.Records > ycsb.MaxRecords/growth:
		return fmt.Errorf("%d records: want %d to %d", s.Records, hotShare, int64(ycsb.MaxRecords/growth))
	case s.Duration < rounds*time.Millisecond:
		return fmt.Errorf("duration of %v: want at least %v", s.Duration, rounds*time.Millisecond)
	case !(s.Rate >= 0 && s.Rate <= ycsb.MaxRate):
		return fmt.Errorf("rate of %g operations a second: want 0 to %g", s.Rate, float64(ycsb.MaxRate))
	case len(s.Events) == 0:
		return fmt.Errorf("no event to measure: want some of %v", Events)
	}
	for i, e := range s.Events {
		if _, err := bench.Parse("event", string(e), Events); err != nil {
			return err
		}
		if slices.Contains(s.Events[:i], e) {
			return fmt.Errorf("event %s is given twice", e)
		}
	}
	if need, total := s.memory(), mem.Total(); total > 0 && need > float64(total)*0.9 {
		return fmt.Errorf("%d records of %v need about %v of memory, this machine has %v",
			s.Records, units.Size(s.ValueSize), units.Size(need), units.Size(total))
	}
	return nil
}

// options returns the options of a store for an event, without its device.
func (s *Spec) options(e Event) kv.Options {
	log := s.logBytes()
	opts := kv.Options{KeySize: ycsb.KeySize, ValueSize: s.ValueSize, Records: s.Records, Memory: 2*log + slack}
	switch e {
	case Compaction: // what is copied, and what is overwritten meanwhile, stays in memory
		opts.Memory = 4*log + slack
	case Growth:
		opts.Memory = growth*2*log + slack
	case Flush:
		opts.Memory = log + slack
	}
	return opts
}

// slack is memory beside that for records: a store needs a few pages.
const slack = 16 << 20

func (s *Spec) logBytes() int64 { return ycsb.LogBytes(s.Records, s.ValueSize) }

// used returns the number of records that are read and upserted during an event.
func (s *Spec) used(e Event) int64 {
	if e == Flush || e == Resize {
		return s.Records / hotShare
	}
	return s.Records
}

// memory estimates the memory of the largest store.
func (s *Spec) memory() (most float64) {
	for _, e := range append([]Event{Quiet}, s.Events...) {
		records := s.Records
		if e == Growth {
			records *= growth
		}
		opts := s.options(e)
		most = max(most, float64(opts.Memory)+float64(kv.IndexMemory(records)))
	}
	return most
}

// cells are the cells of a run, in the order of a round.
func (s *Spec) cells() (cells []cell) {
	cells = append(cells, cell{Machine, s.Records}, cell{Quiet, s.Records})
	if hot := (cell{Quiet, s.Records / hotShare}); slices.ContainsFunc(s.Events, func(e Event) bool { return s.used(e) == hot.used }) {
		cells = append(cells, hot)
	}
	for _, e := range s.Events {
		cells = append(cells, cell{e, s.used(e)})
	}
	return cells
}
