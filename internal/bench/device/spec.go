package device

import (
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ssdtier"
)

// Op is the kind of a cell's operations.
type Op string

// The operations.
const (
	Read  Op = "read"  // of random blocks
	Write Op = "write" // of the next block, into files that were written before
	Grow  Op = "grow"  // of the next block, into files with space that was never written
	Store Op = "store" // reads of random records of a store on the device
)

// Ops lists all of them.
var Ops = []Op{Read, Write, Grow, Store}

// writes says whether the operation writes the next block of a log.
func (o Op) writes() bool { return o == Write || o == Grow }

// Limits of a Spec.
const (
	MaxBlock = 64 << 20
	MaxDepth = 1 << 12
	MinSize  = 1 << 20
)

// Spec says what to measure: each operation with each block and depth.
type Spec struct {
	Device   string
	Ops      []Op
	Blocks   []int // bytes of an operation
	Depths   []int // operations in flight
	Batch    int   // most completions polled before the next operations start; 0: see batch
	Duration time.Duration
	Size     int64          // bytes of the log
	Dir      string         // empty, for files
	Engine   ssdtier.Engine // of the ssd
	Verify   ssdtier.Verify // of the ssd
	NoFio    bool           // do not measure fio
	Net      string         // of redy: a model of the network, as of fabric.ParseNetwork
	Command  []string       // of redy: the cache server, as of manager.LocalOptions
}

// files returns the most bytes that the files of an ssd take, with fio's beside them.
func (s *Spec) files() int64 {
	logs := 0
	for _, op := range s.Ops {
		logs++
		if op.writes() {
			logs++ // until it is truncated, and the files that are kept for reuse
		}
		switch {
		case s.NoFio:
		case op == Write:
			logs++
		case op == Grow:
			logs += growth
		}
	}
	return int64(min(float64(logs)*float64(s.Size), 1<<62))
}

// batch returns the most completions that are polled at once. By default it is one for
// reads, as in fio, and any number for writes, as in a log.
func (s *Spec) batch(op Op) int {
	switch {
	case s.Batch > 0:
		return s.Batch
	case op.writes():
		return slices.Max(s.Depths)
	}
	return 1
}

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	if _, err := findDevice(s.Device); err != nil {
		return err
	}
	if len(s.Ops) == 0 || len(s.Blocks) == 0 || len(s.Depths) == 0 {
		return fmt.Errorf("nothing to measure: want an operation, a block and a depth at least")
	}
	for _, op := range s.Ops {
		if !slices.Contains(Ops, op) {
			return fmt.Errorf("unknown operation %q: want one of %v", op, Ops)
		}
	}
	for _, n := range s.Blocks {
		if n < 1 || n > MaxBlock {
			return fmt.Errorf("block of %d bytes: want 1 to %v", n, units.Size(MaxBlock))
		}
	}
	if slices.Contains(s.Ops, Store) && (len(s.Blocks) != 1 || s.Blocks[0] < minRecord || s.Blocks[0] > maxRecord || s.Blocks[0]%8 != 0) {
		return fmt.Errorf("records of %v bytes: want one size from %d to %d, a multiple of 8", s.Blocks, minRecord, maxRecord)
	}
	for _, n := range s.Depths {
		if n < 1 || n > MaxDepth {
			return fmt.Errorf("depth %d: want 1 to %d", n, MaxDepth)
		}
	}
	if !slices.Contains(ssdtier.Engines, s.Engine) {
		return fmt.Errorf("unknown engine %q: want one of %v", s.Engine, ssdtier.Engines)
	}
	if !slices.Contains(ssdtier.Verifies, s.Verify) {
		return fmt.Errorf("unknown verification %q: want one of %v", s.Verify, ssdtier.Verifies)
	}
	if _, err := fabric.ParseNetwork(s.Net); err != nil {
		return err
	}
	if s.Batch < 0 || s.Batch > MaxDepth {
		return fmt.Errorf("batch of %d completions: want 1 to %d, or 0", s.Batch, MaxDepth)
	}
	block, depth := slices.Max(s.Blocks), slices.Max(s.Depths)
	if s.Size < MinSize || s.Size/4 < int64(block)*int64(depth) {
		return fmt.Errorf("size of %v: want at least %v, and four times the %d blocks of %v in flight",
			units.Size(s.Size), units.Size(MinSize), depth, units.Size(block))
	}
	if s.Duration < bench.MinDuration {
		return fmt.Errorf("duration of %v: want at least %v", s.Duration, bench.MinDuration)
	}
	return nil
}
