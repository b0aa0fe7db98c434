package allocator

import (
	"sync"
	"time"

	"github.com/redykv/redykv/manager/menu"
)

// Predictor predicts the lifetimes of spot VMs from observed ones (R28). Its methods are
// safe for concurrent use.
type Predictor interface {
	// Observe records the lifetime of a VM, and whether it was reclaimed or given back.
	Observe(kind menu.Kind, lived time.Duration, reclaimed bool)
	// Lifetime returns the expected lifetime of a VM; 0: unknown. alive is the sum of the
	// lifetimes of the kind's VMs that still run.
	Lifetime(kind menu.Kind, alive time.Duration) time.Duration
}

// Life are the observed lifetimes of the spot VMs of one kind.
type Life struct {
	Kind      menu.Kind
	Lived     time.Duration // sum
	Reclaimed int           // how many of them were reclaimed
}

// Learner is a [Predictor] whose observations the manager stores. Lives is called after each
// Observe, and must not call the manager.
type Learner interface {
	Predictor
	// Lives returns all observations.
	Lives() []Life
	// RestoreLives restores stored observations. It is called once, before all other methods.
	RestoreLives(lives []Life)
}

// NewPredictor returns a [Learner] that assumes exponentially distributed lifetimes: the
// expected lifetime of a kind is the sum of its VMs' lifetimes, running ones included,
// divided by the number of reclaimed VMs, whatever a VM's age. It is unknown until three VMs
// of the kind were reclaimed.
func NewPredictor() Predictor { return &exponential{kinds: make(map[menu.Kind]*Life)} }

type exponential struct {
	mu    sync.Mutex // guards kinds
	kinds map[menu.Kind]*Life
}

// enoughReclaims is the number of reclaims needed for a prediction.
const enoughReclaims = 3

func (e *exponential) Observe(kind menu.Kind, lived time.Duration, reclaimed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.kinds[kind]
	if l == nil {
		l = &Life{Kind: kind}
		e.kinds[kind] = l
	}
	l.Lived += max(0, lived)
	if reclaimed {
		l.Reclaimed++
	}
}

func (e *exponential) Lifetime(kind menu.Kind, alive time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.kinds[kind]; l != nil && l.Reclaimed >= enoughReclaims {
		return max(1, (l.Lived+alive)/time.Duration(l.Reclaimed))
	}
	return 0
}

// Lives implements [Learner].
func (e *exponential) Lives() []Life {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Life
	for _, l := range e.kinds {
		all = append(all, *l)
	}
	return all
}

// RestoreLives implements [Learner].
func (e *exponential) RestoreLives(all []Life) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range all {
		e.kinds[l.Kind] = &Life{Kind: l.Kind, Lived: max(0, l.Lived), Reclaimed: max(0, l.Reclaimed)}
	}
}
