package manager

import (
	"sync"
	"time"

	"github.com/redykv/redykv/manager/plan"
)

// Metrics are numbers about a manager, of one moment.
type Metrics struct {
	Caches   int
	Capacity uint64     // bytes of all caches, as asked
	Cost     plan.Price // of all caches together: while one moves, of its old and new VMs
	WarmCost plan.Price // of VMs that are kept ready
	VMs      []VMCount

	// Counts since the manager began.
	Allocated   uint64 // caches
	Refused     uint64 // calls of Allocate that found too little
	Reallocated uint64 // caches that got further VMs
	MovesAsked  uint64 // caches that were told of cheaper VMs
	Reclaimed   uint64 // VMs that were announced to go
	Failed      uint64 // VMs that are gone
	Suspected   uint64 // VMs that fell silent while caches had memory there
	Blinded     uint64 // times that at least half of the servers fell silent together, and none was suspected

	Blind bool // this is the case now

	// NoticeLeft is how much of a VM's notice was left when its cache had left it.
	NoticeLeft Durations
	// MigrationRate is how many bytes a second leave a VM, as caches have measured it.
	MigrationRate float64
}

// VMCount counts the VMs of one type that are in one state.
type VMCount struct {
	Type  string // empty: of no menu
	Spot  bool
	State string // starting, up, warm, silent or leaving
	VMs   int
}

// Durations is a distribution.
type Durations struct {
	Bounds []time.Duration // upper ones
	Counts []uint64        // cumulative, by bound
	Count  uint64
	Sum    time.Duration
}

var noticeBounds = []time.Duration{0, time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}

// counts is what Metrics has that is no state of the catalog.
type counts struct {
	mu sync.Mutex
	m  Metrics
}

// note changes the counts.
func (c *counts) note(change func(*Metrics)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.m)
}

// left notes how much notice was left.
func (m *Metrics) left(d time.Duration) {
	n := &m.NoticeLeft
	if n.Bounds == nil {
		n.Bounds, n.Counts = noticeBounds, make([]uint64, len(noticeBounds))
	}
	n.Count++
	n.Sum += d
	for i, bound := range n.Bounds {
		if d <= bound {
			n.Counts[i]++
		}
	}
}

// Metrics takes the numbers.
func (m *Manager) Metrics() Metrics {
	m.counts.mu.Lock()
	all := m.counts.m
	all.NoticeLeft.Counts = append([]uint64(nil), all.NoticeLeft.Counts...)
	m.counts.mu.Unlock()
	all.MigrationRate = m.rate.get()
	m.state.count(&all)
	return all
}

// count adds what the catalog knows.
func (c *state) count(m *Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Blind = c.blind
	for _, ca := range c.caches {
		if ca.ready {
			m.Caches++
			m.Capacity += ca.demand.capacity
			m.Cost += ca.cost()
		}
	}
	at := make(map[VMCount]int)
	for _, v := range c.vms {
		at[VMCount{Type: v.Type, Spot: v.Spot, State: v.state()}]++
		if v.warm {
			m.WarmCost += v.Price
		}
	}
	for k, n := range at {
		k.VMs = n
		m.VMs = append(m.VMs, k)
	}
}

// state is called under mu.
func (v *vm) state() string {
	switch {
	case v.ControlURL == "":
		return "starting"
	case !v.leaves.IsZero():
		return "leaving"
	case v.unheard:
		return "silent"
	case v.warm:
		return "warm"
	}
	return "up"
}
