// Package gate keeps barriers out of sections that must not be cut, such as transactions.
package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Gate is open for any number of sections, and closed for all while a barrier is in progress, which
// begins when no section is inside. The zero value is open.
//
// A section may take long, and others should not wait for it because a barrier does. So a barrier
// first waits, with the gate open, until the sections of before have ended: those that begin
// meanwhile are of another generation. Then it closes the gate, and waits for the sections of that
// generation, for a moment only: if one takes longer, the gate opens again, and the barrier begins
// anew with more patience. So it comes to pass however many sections there are.
type Gate struct {
	state  atomic.Uint64
	serial sync.Mutex // guards the next two
	// opened is closed when the gate opens; nil if nobody waits for that.
	opened  chan struct{}
	drained chan struct{} // holds a token when a generation may have ended; nil before the first barrier
	barrier chan struct{} // holds a token while there is a barrier
}

// The state: closed, the current generation, whether a barrier waits for sections, and the number of
// sections of either generation, 30 bits each.
const (
	closed  = 1 << 63
	second  = 1 << 62
	watched = 1 << 61

	shift = 30
	mask  = 1<<shift - 1
)

// Section is a section that has begun; the zero value has not.
type Section uint64

// one is a section of the current generation.
func one(state uint64) Section {
	if state&second != 0 {
		return 1 << shift
	}
	return 1
}

// of returns the number of sections of a generation.
func (s Section) of(state uint64) uint64 { return state / uint64(s) & mask }

// firstPatience is how long a barrier keeps the gate closed at first while a section goes on.
const firstPatience = 5 * time.Millisecond

// Enter begins a section. It waits while the gate is closed, until ctx ends.
func (g *Gate) Enter(ctx context.Context) (Section, error) {
	for {
		old := g.state.Load()
		if s := one(old); old&closed == 0 {
			if g.state.CompareAndSwap(old, old+uint64(s)) {
				return s, nil
			}
			continue
		}
		opened := g.opening()
		if opened == nil {
			continue
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// opening returns what is closed when the gate opens; nil if it is open.
func (g *Gate) opening() chan struct{} {
	g.serial.Lock()
	defer g.serial.Unlock()
	if g.state.Load()&closed == 0 {
		return nil
	}
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	return g.opened
}

// Leave ends a section.
func (g *Gate) Leave(s Section) {
	if now := g.state.Add(-uint64(s)); now&watched != 0 && s.of(now) == 0 {
		select {
		case g.drained <- struct{}{}:
		default: // there is a token
		}
	}
}

// Shut begins a barrier, which Open ends. It waits for other barriers and for sections. If ctx ends
// first, Shut returns its error, and nothing is left of it.
func (g *Gate) Shut(ctx context.Context) (err error) {
	select {
	case g.barriers() <- struct{}{}:
	default:
		select {
		case g.barrier <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() {
		if err != nil {
			g.Open()
		}
	}()
	if empty := g.state.Load() & second; g.state.CompareAndSwap(empty, empty|closed) {
		return nil
	}
	g.state.Or(watched)
	for patience := firstPatience; ; patience *= 2 {
		// Both generations may have sections after a barrier that gave up.
		for range 2 {
			other := one(g.state.Load() ^ second)
			if _, err := g.wait(ctx, nil, func(state uint64) bool { return other.of(state) == 0 }); err != nil {
				return err
			}
			g.flip()
		}
		g.state.Or(closed)
		timer := time.NewTimer(patience)
		empty, err := g.wait(ctx, timer.C, func(state uint64) bool { return state&^(closed|second|watched) == 0 })
		timer.Stop()
		if empty || err != nil {
			return err
		}
		g.open(closed)
	}
}

// flip makes the other generation the current one.
func (g *Gate) flip() {
	for old := g.state.Load(); !g.state.CompareAndSwap(old, old^second); old = g.state.Load() {
	}
}

// wait waits until done, the time is up, or ctx ends.
func (g *Gate) wait(ctx context.Context, timeUp <-chan time.Time, done func(state uint64) bool) (bool, error) {
	for {
		if done(g.state.Load()) {
			return true, nil
		}
		select {
		case <-g.drained:
		case <-timeUp:
			return done(g.state.Load()), nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// barriers makes the channels before the first barrier.
func (g *Gate) barriers() chan struct{} {
	g.serial.Lock()
	defer g.serial.Unlock()
	if g.barrier == nil {
		g.barrier, g.drained = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	return g.barrier
}

// open clears bits of the state, of which closed is one.
func (g *Gate) open(bits uint64) {
	g.serial.Lock()
	defer g.serial.Unlock()
	g.state.And(^bits)
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// Open ends a barrier.
func (g *Gate) Open() {
	g.open(closed | watched)
	<-g.barrier
}

// Waiting reports whether a barrier waits or is in progress.
func (g *Gate) Waiting() bool { return g.state.Load()&(closed|watched) != 0 }
