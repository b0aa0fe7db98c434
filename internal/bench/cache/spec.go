package cache

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/redytier"
)

// Op is the kind of a cell's operations: one of those below, or mixed:R for R reads in 100
// operations, the others writes, in random order.
type Op string

// The operations.
const (
	Read  Op = "read"
	Write Op = "write"
	Mixed Op = "mixed" // one read for each write, in random order
)

// Ops lists the named ones.
var Ops = []Op{Read, Write, Mixed}

// writes returns how many of 100 operations are writes; ok is false for unknown operations.
func (op Op) writes() (percent int, ok bool) { return fabricbench.Op(op).Writes() }

// Mode is the way from the application to the cache.
type Mode string

// The modes.
const (
	// Session: each thread owns and polls a session (run to completion).
	Session Mode = "session"
	// Callback: each thread calls a client thread of the cache.
	Callback Mode = "callback"
)

// Modes lists all of them.
var Modes = []Mode{Session, Callback}

// Bounds of a Spec, in bytes.
const (
	MaxSize     = 1 << 20
	MinCapacity = MaxSize
)

// Spec says what to measure: each operation of each size in each mode with each
// configuration. Sizes are in bytes.
type Spec struct {
	Transport string
	Net       string // the model of the network in between, as redytier.Config.Net
	Variants  []Variant
	Modes     []Mode
	Ops       []Op
	Sizes     []int
	// InFlight is the number of requests that each thread keeps in flight in mode
	// Callback, where requests without room wait. 0: b·q, for which there is room (A15).
	InFlight int
	Capacity int64            // of each cache; there is one for each variant
	Idle     fabricbench.Idle // what an idle thread does
	Duration time.Duration    // of each cell
	Pending  func([]string)   // redytier.Config.Progress
}

// Variant is a configuration with a tuning.
type Variant struct {
	Config redytier.Configuration
	Tuning redytier.Tuning
}

// Product returns every configuration with every tuning.
func Product(configs []redytier.Configuration, tunings []redytier.Tuning) []Variant {
	var all []Variant
	for _, c := range configs {
		for _, t := range tunings {
			all = append(all, Variant{c, t})
		}
	}
	return all
}

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	for what, n := range map[string]int{
		"configurations": len(s.Variants), "modes": len(s.Modes), "operations": len(s.Ops), "sizes": len(s.Sizes),
	} {
		if n == 0 {
			return fmt.Errorf("no %s to measure", what)
		}
	}
	for _, op := range s.Ops {
		if _, ok := op.writes(); !ok {
			return fmt.Errorf("unknown operation %q: want one of %v, or mixed:95 for 95%% reads", op, Ops)
		}
	}
	for _, m := range s.Modes {
		if !slices.Contains(Modes, m) {
			return fmt.Errorf("unknown mode %q: want one of %v", m, Modes)
		}
	}
	for _, n := range s.Sizes {
		if n < 1 || n > MaxSize {
			return fmt.Errorf("size of %d bytes: want 1 to %v", n, units.Size(MaxSize))
		}
	}
	for _, v := range s.Variants {
		c := v.Config
		if err := c.Check(0); err != nil {
			return err
		}
		if err := v.Tuning.Check(c); err != nil {
			return fmt.Errorf("configuration %s: %w", ConfigString(c), err)
		}
	}
	switch {
	case s.InFlight < 0 || s.InFlight > redytier.MaxDepth || s.InFlight > 0 && !slices.Equal(s.Modes, []Mode{Callback}):
		return fmt.Errorf("%d requests in flight in modes %v: want 0 to %d, and mode %s alone", s.InFlight, s.Modes, redytier.MaxDepth, Callback)
	case s.Capacity < MinCapacity:
		return fmt.Errorf("capacity of %v: want at least %v", units.Size(s.Capacity), units.Size(MinCapacity))
	case !slices.Contains(fabricbench.Idles, s.Idle):
		return fmt.Errorf("unknown way to idle %q: want one of %v", s.Idle, fabricbench.Idles)
	case s.Duration < bench.MinDuration:
		return fmt.Errorf("duration of %v: want at least %v", s.Duration, bench.MinDuration)
	}
	_, err := fabric.ParseNetwork(s.Net)
	return err
}

// DefaultIdle returns the better way for the transport and that many processors. With more
// polling threads than processors, threads keep each other from running for milliseconds.
func (s *Spec) DefaultIdle(processors int) fabricbench.Idle {
	for _, v := range s.Variants {
		pollers := v.Config.ClientThreads
		if v.Config.BatchSize > 1 || v.Tuning.TwoSided {
			pollers += v.Config.ServerThreads
		}
		if slices.Contains(s.Modes, Callback) {
			pollers += v.Config.ClientThreads
		}
		if pollers > processors {
			return fabricbench.Wait
		}
	}
	return fabricbench.DefaultIdle(s.Transport)
}

// depthOf returns the number of requests for which a thread of a configuration has room.
func depthOf(c redytier.Configuration) int { return c.BatchSize * c.QueueDepth }

// inFlight returns the number of requests that each thread keeps in flight.
func (s *Spec) inFlight(c redytier.Configuration) int {
	if s.InFlight > 0 {
		return s.InFlight
	}
	return depthOf(c)
}

// ParseConfig reads a configuration as c,s,b,q.
func ParseConfig(s string) (c redytier.Configuration, err error) {
	fields := strings.Split(s, ",")
	into := []*int{&c.ClientThreads, &c.ServerThreads, &c.BatchSize, &c.QueueDepth}
	if len(fields) != len(into) {
		return c, fmt.Errorf("configuration %q: want c,s,b,q", s)
	}
	for i, f := range fields {
		if *into[i], err = strconv.Atoi(strings.TrimSpace(f)); err != nil {
			return c, fmt.Errorf("configuration %q: %q is no number", s, f)
		}
	}
	return c, nil
}

// ConfigString writes a configuration as ParseConfig reads it.
func ConfigString(c redytier.Configuration) string {
	return fmt.Sprintf("%d,%d,%d,%d", c.ClientThreads, c.ServerThreads, c.BatchSize, c.QueueDepth)
}
