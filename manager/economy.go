package manager

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
	// Lifetime is how long a VM of the kind is expected to go on; 0: not known.
	Lifetime(kind menu.Kind) time.Duration
}

// NewPredictor returns a predictor that takes lifetimes for exponentially
// distributed: what is expected of a kind is all the time that its VMs have lived,
// for each that was reclaimed, and the same however old a VM is. It says nothing of
// a kind before three of its VMs were reclaimed.
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

func (e *exponential) Lifetime(kind menu.Kind) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.kinds[kind]; l != nil && l.reclaimed >= enoughReclaims {
		return max(1, l.lived/time.Duration(l.reclaimed))
	}
	return 0
}

// rate is how fast memory leaves a VM, as caches have measured it.
type rate struct {
	mu    sync.Mutex
	bytes float64 // a second
}

const (
	// leastMove is how much has to be moved at a time to say something of the rate:
	// less is ruled by what a move costs once.
	leastMove = 16 << 20
	// rateWeight is that of one report in the average.
	rateWeight = 0.25
)

func (r *rate) report(bytes uint64, took time.Duration) {
	if bytes < leastMove || bytes > maxVMMemory || took <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += rateWeight * (float64(bytes)/took.Seconds() - r.bytes)
}

func (r *rate) get() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// observe tells the predictor that a spot VM's life is over: it is reclaimed, or
// given back before. nil is none.
func (m *Manager) observe(v *vm, reclaimed bool) {
	if v == nil || !v.launched {
		return
	}
	m.catalog.mu.Lock()
	kind, started, over := v.kind(), v.Started, !v.leaves.IsZero()
	m.catalog.mu.Unlock()
	if kind.Spot && !started.IsZero() && !over { // else it was observed when it was reclaimed
		m.opts.Predictor.Observe(kind, m.opts.now().Sub(started), reclaimed)
	}
}

// up returns a VM that has registered, or nil.
func (c *catalog) up(id string) *vm {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[id]; v != nil && v.ControlURL != "" {
		return v
	}
	return nil
}

// kind is how a VM was ordered.
func (v *vm) kind() menu.Kind {
	return menu.Kind{Type: v.Type, CloudRegion: v.CloudRegion, Distance: int(v.Distance), Spot: v.Spot}
}
