package fabric

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// ErrFault is the error that a Faulty makes up.
var ErrFault = errors.New("fabric: injected fault")

// FaultOptions say what goes wrong. Probabilities are from 0 to 1 and are drawn
// for each operation from a generator of its queue pair, which Seed and the pair's
// number determine. Operations of all queue pairs are counted together, from 1.
type FaultOptions struct {
	Seed uint64

	// Dial: it fails with ErrFault, as does an Import.
	Dial, Import float64
	// Error: the operation moves no bytes and completes with ErrFault.
	Error float64
	// FailAt does so to the k-th operation from when it is set.
	FailAt int64
	// Cut: the connection ends before the operation, for both sides with
	// ErrDisconnected. What was submitted before may or may not have taken place.
	Cut float64
	// CutAt does so at the k-th operation from when it is set.
	CutAt int64
	// Corrupt: one bit of what a WriteImm carries is another one, or of its
	// immediate if it carries nothing.
	Corrupt float64
	// Delay: completions are held back for up to MaxDelay polls (default 8).
	Delay    float64
	MaxDelay int
}

const defaultMaxDelay = 8

// FaultCounts are how often what happened.
type FaultCounts struct{ Errors, Cuts, Corrupted, Delayed uint64 }

// Faulty is another Provider whose queue pairs fail on purpose, on the side that
// it is on. It is for tests, and allocates where something goes wrong. With the
// zero options it is as good as the other.
type Faulty struct {
	Provider
	opts  atomic.Pointer[faultPlan]
	pairs atomic.Uint64 // made so far: numbers their generators

	errors, cuts, corrupted, delayed atomic.Uint64

	mu   sync.Mutex // guards what follows
	rand *rand.Rand // of Dial
	live map[*faultyPair]struct{}
}

// faultPlan is what was set last, and the operations since.
type faultPlan struct {
	FaultOptions
	operations atomic.Int64
}

// WithFaults wraps p.
func WithFaults(p Provider, opts FaultOptions) *Faulty {
	f := &Faulty{Provider: p, rand: rand.New(rand.NewPCG(opts.Seed, 0)), live: map[*faultyPair]struct{}{}}
	f.Set(opts)
	return f
}

// Set changes what goes wrong from now on, and counts operations anew. Queue pairs
// keep their generators.
func (f *Faulty) Set(opts FaultOptions) {
	if opts.MaxDelay == 0 {
		opts.MaxDelay = defaultMaxDelay
	}
	f.opts.Store(&faultPlan{FaultOptions: opts})
}

// Counts returns what has happened so far.
func (f *Faulty) Counts() FaultCounts {
	return FaultCounts{
		Errors: f.errors.Load(), Cuts: f.cuts.Load(), Corrupted: f.corrupted.Load(), Delayed: f.delayed.Load(),
	}
}

// CutAll cuts every connection there is. Owners learn of it at once; peers when
// the owner of this side's queue pair calls one of its methods next.
func (f *Faulty) CutAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for q := range f.live {
		q.cut()
		q.Wake()
	}
}

// Listen implements Provider.
func (f *Faulty) Listen(addr string, depth int) (Listener, error) {
	l, err := f.Provider.Listen(addr, depth)
	if err != nil {
		return nil, err
	}
	return &faultyListener{Listener: l, provider: f, depth: depth}, nil
}

// Dial implements Provider.
func (f *Faulty) Dial(ctx context.Context, addr string, private []byte, depth int) (QueuePair, error) {
	if f.chance(f.opts.Load().Dial) {
		f.errors.Add(1)
		return nil, fmt.Errorf("dial %q: %w", addr, ErrFault)
	}
	q, err := f.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	return f.newPair(q, depth), nil
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

type faultyListener struct {
	Listener
	provider *Faulty
	depth    int
}

func (l *faultyListener) Accept(ctx context.Context) (Request, error) {
	r, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyRequest{Request: r, listener: l}, nil
}

type faultyRequest struct {
	Request
	listener *faultyListener
}

func (r *faultyRequest) Accept(private []byte) (QueuePair, error) {
	q, err := r.Request.Accept(private)
	if err != nil {
		return nil, err
	}
	return r.listener.provider.newPair(q, r.listener.depth), nil
}
