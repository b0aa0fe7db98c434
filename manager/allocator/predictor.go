package allocator

import (
	"sync"
	"time"

	"github.com/redykv/redykv/manager/menu"
)

// Predictor learns how long spot VMs live, and says so of those to come (R28). Its
// methods are safe for concurrent use.
type Predictor interface {
	// Observe says how long a VM of a kind has lived, and whether it was reclaimed
	// then, or given back before.
	Observe(kind menu.Kind, lived time.Duration, reclaimed bool)
	// Lifetime is how long a VM of the kind is expected to go on; 0: not known. alive is
	// how long those have lived, all together, that are there still.
	Lifetime(kind menu.Kind, alive time.Duration) time.Duration
}

// Life is what is known of how long the spot VMs of a kind live.
type Life struct {
	Kind      menu.Kind
	Lived     time.Duration // all of them together
	Reclaimed int           // how many of them were
}

// Learner is a [Predictor] of which a restart of its manager forgets nothing. Lives is
// called after each Observe, and calls nothing of the manager.
type Learner interface {
	Predictor
	// Lives is all that was observed.
	Lives() []Life
	// Relive takes up what another one has observed, once, before anything else.
	Relive(lives []Life)
}

// NewPredictor returns a [Learner] that takes lifetimes for exponentially
// distributed: what is expected of a kind is all the time that its VMs have lived, those
// that live still among them, for each that was reclaimed, and the same however old a VM
// is. It says nothing of a kind before three of its VMs were reclaimed.
func NewPredictor() Predictor { return &exponential{kinds: make(map[menu.Kind]*lives)} }

type exponential struct {
	mu    sync.Mutex
	kinds map[menu.Kind]*lives
}

type lives struct {
	lived     time.Duration
	reclaimed int
}

// enoughReclaims is how many are needed before anything is said.
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
