package manager

import (
	"slices"
	"sync"

	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/plan"
)

// Metrics are a manager's metrics.
type Metrics struct {
	Caches   int
	Lingers  int        // of them, whose lease has ended
	Broken   int        // of them, whose SLO is broken by what their clients measure
	Capacity uint64     // bytes of all caches, as asked
	Cost     plan.Price // of all caches; of a cache that moves, both old and new VMs
	WarmCost plan.Price // of VMs in warm pools
	VMs      []VMCount
	Named    []VMName // VMs that the allocator names
	// BrokenCaches are the ids of the caches whose SLO is broken, in order, at most 100.
	BrokenCaches []string

	// Counters since the start of the manager.
	Allocated   uint64 // caches
	Refused     uint64 // calls of Allocate refused for too little memory
	Reallocated uint64 // caches that got more grants
	Attached    uint64 // caches that another client took up
	Expired     uint64 // caches that were deallocated because their leases or enforced durations had ended
	MovesAsked  uint64 // caches that were asked to move
	// Caches that were asked for another configuration, because their SLO was broken, or is kept with
	// less.
	ReconfiguresAsked uint64
	Calibrated        uint64 // kinds of machines for which models of others were scaled
	Corrected         uint64 // times that a model was corrected by what a cache gave
	Reclaimed         uint64 // VMs that were reclaimed
	Failed            uint64 // VMs that failed
	Suspected         uint64 // VMs that fell silent and had grants
	// Windows that clients measured, and that were judged by the SLOs of their caches; and of them,
	// those that missed it.
	WindowsJudged, WindowsMissed uint64
	Blinded                      uint64 // times that at least half of the servers fell silent together, and none was suspected

	RenewalsRefused uint64 // renewals that were refused for their token
	Braked          uint64 // times that at least half of the clients fell silent together, and no lease ended

	// UnknownGrants are those that clients use and whose caches the catalog does not know. They stay lent.
	UnknownGrants int

	Leads bool // the manager leads, and does not stand by
	Blind bool // the manager is blind now

	// NoticeLeft is the notice that was left when a cache had left a reclaimed VM.
	NoticeLeft Durations
	// Calls are the times of calls, by procedure.
	Calls []CallDurations
	// Commits are the times of writes of the catalog: with Pebble and etcd each is synced.
	Commits Durations
	// MigrationRate is the rate in bytes a second at which memory leaves a VM over the default
	// transport, for a client that has not measured it; 0: unknown.
	MigrationRate float64
}

// maxBrokenCaches bounds Metrics.BrokenCaches.
const maxBrokenCaches = 100

// VMCount counts the VMs of one type that are in one state.
type VMCount struct {
	Type  string // empty: not of a menu
	Spot  bool
	State string // starting, up, warm, silent or leaving
	// Machine is where they run, as the allocator says; empty: not known.
	Machine string
	VMs     int
	Memory  uint64 // bytes that they can lend
	Free    uint64 // of them, that no cache has
}

// VMName is what the allocator calls a VM, such as a pod.
type VMName struct {
	VM   string // id
	Type string // empty: not of a menu
	allocator.Place
}

// counts are the Metrics that are not computed from the state.
type counts struct {
	mu sync.Mutex
	m  Metrics

	notices, commits *durations
	calls            calls
}

func newCounts() *counts {
	return &counts{notices: newDurations(noticeBounds), commits: newDurations(callBounds), calls: newCalls()}
}

// note changes the counts.
func (c *counts) note(change func(*Metrics)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.m)
}

// Metrics returns the manager's metrics.
func (m *Manager) Metrics() Metrics {
	m.counts.mu.Lock()
	all := m.counts.m
	m.counts.mu.Unlock()
	all.NoticeLeft, all.Commits, all.Calls = m.counts.notices.get(), m.counts.commits.get(), m.counts.calls.get()
	all.MigrationRate = m.rates.of(m.opts.Transport, "")
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
	for ca := range pieces(c, c.caches) {
		if ca.ready {
			m.Caches++
			if !ca.lingers.IsZero() {
				m.Lingers++
			}
			m.Capacity += ca.demand.capacity
			m.Cost += total(ca.all()) // both sides of a move (A30, A39)
			if ca.measurements.broken && ca.lingers.IsZero() {
				m.Broken++
				m.BrokenCaches = append(m.BrokenCaches, ca.id)
			}
		}
	}
	slices.Sort(m.BrokenCaches)
	m.BrokenCaches = m.BrokenCaches[:min(len(m.BrokenCaches), maxBrokenCaches)]
	at := make(map[VMCount]*VMCount) // by the count without its numbers
	for v := range pieces(c, c.vms) {
		for _, s := range v.strays {
			if s.stays {
				m.UnknownGrants++
			}
		}
		k := VMCount{Type: v.Type, Spot: v.Spot, State: v.state(), Machine: v.place.Machine}
		n := at[k]
		if n == nil {
			n = &k
			at[k] = n
		}
		n.VMs++
		n.Memory += v.memory
		n.Free += v.free()
		if v.warm {
			m.WarmCost += v.Price
		}
		if v.place.Name != "" {
			m.Named = append(m.Named, VMName{VM: v.id, Type: v.Type, Place: v.place})
		}
	}
	for _, n := range at {
		m.VMs = append(m.VMs, *n)
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
