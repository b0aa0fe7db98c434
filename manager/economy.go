package manager

import (
	"sync"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
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

// rate is how fast memory leaves a VM, as caches have measured it.
type rate struct {
	mu       sync.Mutex
	bytes    float64 // a second; 0: not known
	measured bool    // by caches
}

const (
	// leastMove is how much has to be moved at a time to say something of the rate:
	// less is ruled by what a move costs once.
	leastMove = 16 << 20
	// rateWeight is that of one report in the average.
	rateWeight = 0.25
)

// report takes what a cache has measured, and returns false where that says nothing.
func (r *rate) report(bytes uint64, took time.Duration) bool {
	if bytes < leastMove || bytes > maxVMMemory || took <= 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, weight := float64(bytes)/took.Seconds(), rateWeight
	if r.bytes == 0 {
		weight = 1
	}
	r.bytes, r.measured = r.bytes+weight*(now-r.bytes), true
	return true
}

// assume sets the rate until caches measure it.
func (r *rate) assume(bytes float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes = bytes
}

// learnt is what caches have measured; 0: they have not.
func (r *rate) learnt() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.measured {
		return 0
	}
	return r.bytes
}

// relearn takes up what caches have measured before a restart.
func (r *rate) relearn(bytes float64) {
	if !(bytes > 0 && bytes <= maxVMMemory) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes, r.measured = bytes, true
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
		m.catalog.remember()
	}
}

// alive is how long the spot VMs of each kind have lived that are there still, all of a
// kind together.
func (c *catalog) alive(now time.Time) map[menu.Kind]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[menu.Kind]time.Duration)
	for _, v := range c.vms {
		if v.launched && v.Spot && !v.Started.IsZero() && v.leaves.IsZero() { // as observe has it
			all[v.kind()] += max(0, now.Sub(v.Started))
		}
	}
	return all
}

// learnt is what a restart is to know of what caches and VMs have shown.
func (m *Manager) learnt() *catalogv1.Learnt {
	p := &catalogv1.Learnt{BytesPerSecond: m.rate.learnt()}
	if l, ok := m.opts.Predictor.(Learner); ok {
		for _, life := range l.Lives() {
			p.Lives = append(p.Lives, &catalogv1.Lives{
				Type: life.Kind.Type, CloudRegion: life.Kind.CloudRegion, Distance: uint32(life.Kind.Distance),
				LivedMs: life.Lived.Milliseconds(), Reclaimed: uint32(life.Reclaimed),
			})
		}
	}
	return p
}

// relearn is the opposite of learnt.
func (m *Manager) relearn(p *catalogv1.Learnt) {
	m.rate.relearn(p.GetBytesPerSecond())
	if l, ok := m.opts.Predictor.(Learner); ok {
		var all []Life
		for _, life := range p.GetLives() {
			all = append(all, Life{
				Kind:  menu.Kind{Type: life.GetType(), CloudRegion: life.GetCloudRegion(), Distance: int(life.GetDistance()), Spot: true},
				Lived: time.Duration(life.GetLivedMs()) * time.Millisecond, Reclaimed: int(life.GetReclaimed()),
			})
		}
		l.Relive(all)
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
