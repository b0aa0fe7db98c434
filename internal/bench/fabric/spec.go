package fabric

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/units"
)

// Op is the kind of a cell's operations: one of those below, or mixed:R for R reads in 100
// operations, the others writes, in random order.
type Op string

// The operations.
const (
	Read    Op = "read"
	Write   Op = "write"
	Mixed   Op = "mixed"   // one read for each write, in random order
	Message Op = "message" // a WriteImm, answered by a WriteImm of the same size
)

// Ops lists the named ones.
var Ops = []Op{Read, Write, Mixed, Message}

// Writes returns how many of 100 operations are writes, the others being reads; ok is false
// for other operations.
func (op Op) Writes() (percent int, ok bool) {
	switch op {
	case Read:
		return 0, true
	case Write:
		return 100, true
	case Mixed:
		return 50, true
	}
	reads, ok := strings.CutPrefix(string(op), string(Mixed)+":")
	n, err := strconv.ParseUint(reads, 10, 8)
	if !ok || err != nil || n > 100 {
		return 0, false
	}
	return 100 - int(n), true
}

// Idle says what an idle side does.
type Idle string

// The ways to idle.
const (
	Poll Idle = "poll" // without pausing
	Wait Idle = "wait" // sleep until there is something to poll
)

// Idles lists all of them.
var Idles = []Idle{Poll, Wait}

// DefaultIdle returns the better way for a transport. Over tcp a goroutine that the kernel
// wakes delivers completions, and polling would take its processor.
func DefaultIdle(transport string) Idle {
	if transport == "tcp" {
		return Wait
	}
	return Poll
}

// MaxSize is the most bytes of one operation.
const MaxSize = 64 << 20

// MinMemory is the least memory that the other side lends.
const MinMemory = 4096

// Spec says what to measure: each operation at each size and depth. Sizes are in
// bytes.
type Spec struct {
	Transport string
	Model     fabric.Model // of the network in between
	Ops       []Op
	Sizes     []int
	Depths    []int // operations in flight
	Idle      Idle
	Duration  time.Duration // of each cell
}

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	if len(s.Ops) == 0 || len(s.Sizes) == 0 || len(s.Depths) == 0 {
		return fmt.Errorf("nothing to measure: want an operation, a size and a depth at least")
	}
	for _, op := range s.Ops {
		if _, ok := op.Writes(); !ok && op != Message {
			return fmt.Errorf("unknown operation %q: want one of %v, or mixed:95 for 95%% reads", op, Ops)
		}
	}
	for _, n := range s.Sizes {
		if n < 1 || n > MaxSize {
			return fmt.Errorf("size of %d bytes: want 1 to %v", n, units.Size(MaxSize))
		}
	}
	for _, n := range s.Depths {
		if n < 1 || n > core.MaxDepth {
			return fmt.Errorf("depth %d: want 1 to %d", n, core.MaxDepth)
		}
	}
	if !slices.Contains(Idles, s.Idle) {
		return fmt.Errorf("unknown way to idle %q: want one of %v", s.Idle, Idles)
	}
	if s.Duration < bench.MinDuration {
		return fmt.Errorf("duration of %v: want at least %v", s.Duration, bench.MinDuration)
	}
	return nil
}
