package fabric

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// ErrFault is the error that a Faulty injects.
var ErrFault = errors.New("fabric: injected fault")

// FaultOptions are the faults that a Faulty injects. Probabilities are from 0 to 1 and are drawn
// for each operation from a generator of its queue pair, which Seed and the pair's
// number determine. Operations of all queue pairs are counted together, from 1.
type FaultOptions struct {
	Seed uint64

	// Dial and Import fail with ErrFault.
	Dial, Import float64
	// An operation moves no bytes and completes with ErrFault.
	Error float64
	// The FailAt-th operation from now on fails like that.
	FailAt int64
	// The connection ends before the operation, with ErrDisconnected on both
	// sides. Operations submitted before may or may not have been executed.
	Cut float64
	// The connection ends like that at the CutAt-th operation from now on.
	CutAt int64
	// One bit of a WriteImm's payload is flipped, or of its immediate if it has
	// no payload.
	Corrupt float64
	// Completions are delayed by up to MaxDelay polls (default 8).
	Delay    float64
	MaxDelay int
}

const defaultMaxDelay = 8

// FaultCounts says how often each fault was injected.
type FaultCounts struct{ Errors, Cuts, Corrupted, Delayed uint64 }

// Faulty wraps a Provider and injects faults into this side of its queue pairs. It is for
// tests, and allocates when it injects. With zero options it injects nothing.
type Faulty struct {
	wrapper
	opts  atomic.Pointer[faultPlan]
	pairs atomic.Uint64 // made so far: numbers their generators

	errors, cuts, corrupted, delayed atomic.Uint64

	mu   sync.Mutex // guards rand
	rand *rand.Rand // decides for Dial
	live map[*faultyPair]struct{}
}

// faultPlan holds the current options and counts the operations since they were set.
type faultPlan struct {
	FaultOptions
	operations atomic.Int64
}

// WithFaults wraps p.
func WithFaults(p Provider, opts FaultOptions) *Faulty {
	f := &Faulty{rand: rand.New(rand.NewPCG(opts.Seed, 0)), live: map[*faultyPair]struct{}{}}
	f.wrapper = wrapper{Provider: p, wrap: func(q QueuePair, depth int, _ bool) QueuePair { return f.newPair(q, depth) }}
	f.Set(opts)
	return f
}

// Set replaces the options and restarts the count of operations. Queue pairs keep their
// generators.
func (f *Faulty) Set(opts FaultOptions) {
	if opts.MaxDelay == 0 {
		opts.MaxDelay = defaultMaxDelay
	}
	f.opts.Store(&faultPlan{FaultOptions: opts})
}

// Counts returns the faults injected so far.
func (f *Faulty) Counts() FaultCounts {
	return FaultCounts{
		Errors: f.errors.Load(), Cuts: f.cuts.Load(), Corrupted: f.corrupted.Load(), Delayed: f.delayed.Load(),
	}
}

// CutAll ends every connection. Owners on this side see it at once, peers when the owner
// on this side calls a method of its queue pair.
func (f *Faulty) CutAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for q := range f.live {
		q.cut()
		q.Wake()
	}
}

// Dial implements Provider.
func (f *Faulty) Dial(ctx context.Context, addr string, private []byte, depth int) (QueuePair, error) {
	if f.chance(f.opts.Load().Dial) {
		f.errors.Add(1)
		return nil, fmt.Errorf("dial %q: %w", addr, ErrFault)
	}
	return f.wrapper.Dial(ctx, addr, private, depth)
}

func (f *Faulty) chance(p float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rand.Float64() < p
}

func (f *Faulty) newPair(inner QueuePair, depth int) *faultyPair {
	q := &faultyPair{
		QueuePair: inner, provider: f, depth: uint64(depth),
		rand: rand.New(rand.NewPCG(f.opts.Load().Seed, f.pairs.Add(1))), ops: newRing[faultyOp](depth),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[q] = struct{}{}
	return q
}

func (f *Faulty) forget(q *faultyPair) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, q)
}
