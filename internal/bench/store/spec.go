package store

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// Op is the kind of a cell's operations.
type Op string

// The operations. Upserts and read-modify-writes are of existing records.
const (
	Read   Op = "read"
	Upsert Op = "upsert"
	RMW    Op = "rmw"
	Mixed  Op = "mixed" // one read for each upsert, in random order
)

// Ops lists all of them.
var Ops = []Op{Read, Upsert, RMW, Mixed}

// rmwBytes is the size of the number to which a read-modify-write adds, at the begin of a value.
const rmwBytes = 8

// touches returns how many bytes of a value an operation reads and writes, on average.
func (o Op) touches(valueSize int) (read, written float64) {
	size := float64(valueSize)
	switch o {
	case Upsert:
		return 0, size
	case RMW:
		return rmwBytes, rmwBytes
	case Mixed:
		return size / 2, size / 2
	}
	return size, 0
}

// Mode is the way in which a cell submits operations to a session.
type Mode string

// The modes.
const (
	Plain Mode = "plain" // one call for each
	Batch Mode = "batch" // Session.Do
	Async Mode = "async" // Session.Submit and Session.Poll
)

// Modes lists all of them.
var Modes = []Mode{Plain, Batch, Async}

// Bounds of a Spec.
const (
	MinValueSize = 8 // the first word of a value identifies its record
	MaxValueSize = ycsb.MaxValueSize
	MaxThreads   = 256
)

// DefaultDepth is the default number of operations in a batch, or pending.
const DefaultDepth = 256

// Spec says what to measure. Sizes are in bytes.
type Spec struct {
	Records       int64
	ValueSize     int
	Variable      bool // records carry their lengths; otherwise all have one size
	Ops           []Op
	Distributions []ycsb.Distribution
	Modes         []Mode
	Threads       []int
	Depth         int           // operations of a batch; most pending in async mode
	Duration      time.Duration // of each cell, all its slices together

	// Cold keeps a sixth of the log in memory and the rest on a device.Memory.
	// Reads only: a log that is written to would grow under the measurement.
	Cold bool
	// ReadCache is the share of a cold store's memory that is read cache.
	ReadCache float64

	// Peer is another store to measure: PeerPebble, or empty for none. It is measured
	// under the plain uniform reads and mixes among Ops.
	Peer string
}

// PeerPebble is the only peer.
const PeerPebble = "pebble"

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	switch {
	case s.Records < 1 || s.Records > ycsb.MaxRecords:
		return fmt.Errorf("%d records: want 1 to %d", s.Records, int64(ycsb.MaxRecords))
	case s.ValueSize < MinValueSize || s.ValueSize > MaxValueSize:
		return fmt.Errorf("value size of %d bytes: want %d to %v", s.ValueSize, MinValueSize, units.Size(MaxValueSize))
	case s.Depth < 1 || s.Depth > kv.MaxQueueDepth:
		return fmt.Errorf("depth %d: want 1 to %d", s.Depth, kv.MaxQueueDepth)
	case s.Duration < bench.MinDuration:
		return fmt.Errorf("duration of %v: want at least %v", s.Duration, bench.MinDuration)
	case s.Cold && !slices.Equal(s.Ops, []Op{Read}):
		return fmt.Errorf("a cold store is measured under reads alone, not %v", s.Ops)
	}
	if !(s.ReadCache >= 0 && s.ReadCache < 1) || s.ReadCache > 0 && !s.Cold { // NaN is refused, too
		return fmt.Errorf("read cache of %g: want a share from 0 to less than 1 of a cold store's memory", s.ReadCache)
	}
	if s.Peer != "" && s.Peer != PeerPebble {
		return fmt.Errorf("unknown peer %q: want %s", s.Peer, PeerPebble)
	}
	if s.Peer != "" && (s.Cold || len(s.peerOps()) == 0 || !slices.Contains(s.Distributions, ycsb.Uniform)) {
		return fmt.Errorf("peer %s needs plain uniform reads or mixes of a store in memory: select some", s.Peer)
	}
	for _, n := range s.Threads {
		if n < 1 || n > MaxThreads {
			return fmt.Errorf("%d threads: want 1 to %d", n, MaxThreads)
		}
	}
	for what, n := range map[string][2]int{
		"operations":    {len(s.Ops), distinct(s.Ops)},
		"distributions": {len(s.Distributions), distinct(s.Distributions)},
		"modes":         {len(s.Modes), distinct(s.Modes)},
		"threads":       {len(s.Threads), distinct(s.Threads)},
	} {
		if n[0] == 0 {
			return fmt.Errorf("no %s to measure", what)
		}
		if n[0] != n[1] {
			return fmt.Errorf("%s: the same is given twice", what)
		}
	}
	if need, total := s.memory(), mem.Total(); total > 0 && need > float64(total)*0.9 {
		return fmt.Errorf("%d records of %v need about %v of memory, this machine has %v",
			s.Records, units.Size(s.ValueSize), units.Size(need), units.Size(total))
	}
	return nil
}

// peerOps returns the operations of a peer's cells.
func (s *Spec) peerOps() (ops []Op) {
	for _, op := range s.Ops {
		if op == Read || op == Mixed {
			ops = append(ops, op)
		}
	}
	return ops
}

func distinct[T cmp.Ordered](all []T) int {
	return len(slices.Compact(slices.Sorted(slices.Values(all))))
}

// recordBytes is the space of one record in the log.
func (s *Spec) recordBytes() int64 {
	n := ycsb.RecordBytes(s.ValueSize)
	if s.Variable {
		n += 8 // lengths
	}
	return n
}

func (s *Spec) logBytes() int64 { return s.Records * s.recordBytes() }

// memory estimates the memory of the run: the store, the yardstick's memory of the same
// size, and the sequences. It is a float so that it cannot overflow.
func (s *Spec) memory() float64 {
	const index = 26 // bytes for each record, at most
	store := float64(s.Records) * float64(s.recordBytes()+index)
	total := 2*store + float64(4*sequenceLength(s.Records)*slices.Max(s.Threads)*len(s.Distributions))
	if s.Cold {
		total += store / coldFactor
	}
	if s.Peer != "" { // its files, and its block cache
		const overhead = 2
		total += 2 * overhead * float64(s.logBytes())
	}
	return total
}
