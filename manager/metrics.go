package manager

import (
	"sync"
	"time"

	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/plan"
)

// Metrics are a manager's metrics.
type Metrics struct {
	Caches   int
	Capacity uint64     // bytes of all caches, as asked
	Cost     plan.Price // of all caches; of a cache that moves, both old and new VMs
	WarmCost plan.Price // of VMs in warm pools
	VMs      []VMCount
	Named    []VMName // VMs that the allocator names

	// Counters since the start of the manager.
	Allocated   uint64 // caches
	Refused     uint64 // calls of Allocate refused for too little memory
	Reallocated uint64 // caches that got more grants
	MovesAsked  uint64 // caches that were asked to move
	Reclaimed   uint64 // VMs that were reclaimed
	Failed      uint64 // VMs that failed
	Suspected   uint64 // VMs that fell silent and had grants
	Blinded     uint64 // times that at least half of the servers fell silent together, and none was suspected

	Leads bool // the manager leads, and does not stand by
	Blind bool // the manager is blind now

	// NoticeLeft is the notice that was left when a cache had left a reclaimed VM.
	NoticeLeft Durations
	// MigrationRate is the rate in bytes a second at which memory leaves a VM.
	MigrationRate float64
}

// VMCount counts the VMs of one type that are in one state.
type VMCount struct {
	Type  string // empty: not of a menu
	Spot  bool
	State string // starting, up, warm, silent or leaving
	// Machine is where they run, as the allocator says; empty: not known.
	Machine string
	VMs     int
}

// VMName is what the allocator calls a VM, such as a pod.
type VMName struct {
	VM   string // id
	Type string // empty: not of a menu
	allocator.Place
}

// Durations is a distribution.
type Durations struct {
	Bounds []time.Duration // upper bounds
	Counts []uint64        // cumulative, by bound
	Count  uint64
	Sum    time.Duration
}

var noticeBounds = []time.Duration{0, time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}

// counts are the Metrics that are not computed from the state.
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

// left adds a notice that was left.
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

// Metrics returns the manager's metrics.
func (m *Manager) Metrics() Metrics {
	m.counts.mu.Lock()
	all := m.counts.m
	all.NoticeLeft.Counts = append([]uint64(nil), all.NoticeLeft.Counts...)
	m.counts.mu.Unlock()
	all.MigrationRate = m.rate.get()
	if l, err := m.leading(); err == nil {
		all.Leads = true
		l.state.count(&all)
	}
	return all
}

// count adds the metrics of the state.
func (c *state) count(m *Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Blind = c.blind
	for _, ca := range c.caches {
		if ca.ready {
			m.Caches++
			m.Capacity += ca.demand.capacity
			m.Cost += total(ca.all()) // both sides of a move (A30, A39)
		}
	}
	at := make(map[VMCount]int)
	for _, v := range c.vms {
		at[VMCount{Type: v.Type, Spot: v.Spot, State: v.state(), Machine: v.place.Machine}]++
		if v.warm {
			m.WarmCost += v.Price
		}
		if v.place.Name != "" {
			m.Named = append(m.Named, VMName{VM: v.id, Type: v.Type, Place: v.place})
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
	case v.silent:
		return "silent"
	case v.warm:
		return "warm"
	}
	return "up"
}
