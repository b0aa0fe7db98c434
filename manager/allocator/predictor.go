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
	// Relive restores stored observations. It is called once, before all other methods.
	Relive(lives []Life)
}

// NewPredictor returns a [Learner] that assumes exponentially distributed lifetimes: the
// expected lifetime of a kind is the sum of its VMs' lifetimes, running ones included,
// divided by the number of reclaimed VMs, whatever a VM's age. It is unknown until three VMs
// of the kind were reclaimed.
func NewPredictor() Predictor { return &exponential{kinds: make(map[menu.Kind]*lives)} }

type exponential struct {
	mu    sync.Mutex
	kinds map[menu.Kind]*lives
}

type lives struct {
	lived     time.Duration
	reclaimed int
}

// enoughReclaims is the number of reclaims needed for a prediction.
const enoughReclaims = 3

func (e *exponential) Observe(kind menu.Kind, lived time.Duration, reclaimed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.kinds[kind]
	if l == nil {
		l = &lives{}
		e.kinds[kind] = l
	}
	l.lived += max(0, lived)
	if reclaimed {
		l.reclaimed++
	}
}

func (e *exponential) Lifetime(kind menu.Kind, alive time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.kinds[kind]; l != nil && l.reclaimed >= enoughReclaims {
		return max(1, (l.lived+alive)/time.Duration(l.reclaimed))
	}
	return 0
}

// Lives implements [Learner].
func (e *exponential) Lives() []Life {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Life
	for k, l := range e.kinds {
		all = append(all, Life{Kind: k, Lived: l.lived, Reclaimed: l.reclaimed})
	}
	return all
}

// Relive implements [Learner].
func (e *exponential) Relive(all []Life) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range all {
		e.kinds[l.Kind] = &lives{lived: max(0, l.Lived), reclaimed: max(0, l.Reclaimed)}
	}
}
