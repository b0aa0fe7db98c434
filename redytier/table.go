package redytier

import (
	"math/bits"
	"slices"
)

// table maps the cache's addresses to regions of servers (R12): address a is in region a >>
// shift at offset a & mask. A published table does not change. A change publishes a modified
// copy (see table_change.go).
type table struct {
	capacity      int64
	shift         uint
	mask          int64
	configuration Configuration
	per           int // number of regions that the configuration was chosen for: it keeps the server threads per region (R73)
	regions       []region
	endpoints     []*endpoint // every session has a connection to each
	// epoch and writeEpoch are entered by sessions that use this table and have no earlier
	// requests pending: see session_refresh.go.
	epoch, writeEpoch uint64
}

// region is one virtual region.
type region struct {
	endpoint *endpoint // nil: the region is unavailable, and cause says why
	index    uint32    // in the endpoint's grant
	cause    *error

	// mirror, if set, gets every write as well: it is the region's place after a move that is
	// not committed yet (A38).
	mirror      *endpoint
	mirrorIndex uint32

	gate   gate
	state  RegionState
	origin *origin // nil: not filled from a file

	epoch        uint64 // number of losses of its memory
	lossReported bool   // lost, and the application was notified of DataLost
}

// gate is the set of kinds of requests that sessions hold.
type gate uint8

const (
	holdWrites gate = 1 << iota // and reads that overlap a held write (A41)
	holdReads
)

// RegionState is the state of a region (A45).
//
//	Stable ──► Quiescing ──► Copying ──► Stable, at its new place
//	   │            └────────────┴─────► Stable, where it was: the move failed
//	   └──► Lost ──► Recovering ──► Stable, at its new place
//
// A region in any state becomes Lost when its server is lost.
type RegionState uint8

// States of a region. In Lost and Recovering requests end with ErrRegionUnavailable, or wait,
// as Config.WaitForLost says.
const (
	Stable RegionState = iota
	Quiescing
	Copying
	Lost
	Recovering
)

// String names the state as logs print it.
func (s RegionState) String() string {
	return [...]string{"stable", "quiescing", "copying", "lost", "recovering"}[s]
}

func newTable(capacity, regionSize int64, c Configuration) *table {
	return &table{
		capacity: capacity, shift: uint(bits.TrailingZeros64(uint64(regionSize))), mask: regionSize - 1,
		configuration: c,
	}
}

// need returns the number of regions of a capacity.
func (t *table) need(capacity int64) int { return int((capacity-1)>>t.shift) + 1 }

// regionSize in bytes.
func (t *table) regionSize() int64 { return t.mask + 1 }

// span returns the addresses of region i.
func (t *table) span(i int) span {
	from := int64(i) << t.shift
	return span{from, min(from+t.regionSize(), t.capacity)}
}

// spans joins the addresses of regions, in ascending order, into contiguous spans of one
// epoch each.
func (t *table) spans(regions []int) (runs []span) {
	for _, i := range regions {
		x := t.span(i)
		if n := len(runs); n > 0 && runs[n-1].to == x.from && t.regions[i-1].epoch == t.regions[i].epoch {
			runs[n-1].to = x.to
		} else {
			runs = append(runs, x)
		}
	}
	return runs
}

// event sets the addresses and the epoch of an event.
func (t *table) event(e Event, at span) Event {
	e.From, e.To = at.from, at.to
	e.Epoch = t.regions[at.from>>t.shift].epoch
	return e
}

// on lists the regions on a grant.
func (t *table) on(g *grant) (regions []int) {
	for i := range t.regions {
		if e := t.regions[i].endpoint; e != nil && e.grant == g {
			regions = append(regions, i)
		}
	}
	return regions
}

// clone returns a copy to change and publish.
func (t *table) clone() *table {
	n := *t
	n.regions, n.endpoints = slices.Clone(t.regions), slices.Clone(t.endpoints)
	return &n
}

// resize sets the number of regions and the capacity. New regions have no place yet. If the
// last region grows by zeros, its origin has no copy of it any more.
func (t *table) resize(regions int, capacity int64) {
	if last := &t.regions[len(t.regions)-1]; capacity > t.capacity && t.capacity&t.mask != 0 && last.origin != nil {
		last.origin.written.Store(true)
	}
	t.capacity = capacity
	t.regions = slices.Grow(t.regions, max(0, regions-len(t.regions)))[:regions]
}

// configure sets the configuration. A different one applies to the current number of regions.
func (t *table) configure(c Configuration) {
	if c != t.configuration {
		t.configuration, t.per = c, len(t.regions)
	}
}

// lost lists the regions that do not answer, in ascending order.
func (t *table) lost() (regions []int) {
	for i := range t.regions {
		if t.regions[i].endpoint == nil {
			regions = append(regions, i)
		}
	}
	return regions
}

// grants lists the grants with regions, in the order of addresses.
func (t *table) grants() (grants []*grant) {
	for i := range t.regions {
		if e := t.regions[i].endpoint; e != nil && !slices.Contains(grants, e.grant) {
			grants = append(grants, e.grant)
		}
	}
	return grants
}

// RegionInfo describes one region.
type RegionInfo struct {
	From, To int64 // addresses
	VM       string
	State    RegionState
	// Epoch is the number of losses of the region's memory since it was added to the cache.
	// If it is the same before a write and after a read, the read returns what was written:
	// it is raised before the region fails or answers with other bytes (A46).
	Epoch uint64
	// Target and Copied are the new VM and the number of copied bytes, while the region
	// moves.
	Target string
	Copied int64
}

// Regions describes the cache's regions, in the order of their addresses.
func (c *Cache) Regions() []RegionInfo {
	t := c.table.Load()
	infos := make([]RegionInfo, len(t.regions))
	for i := range t.regions {
		r, info := &t.regions[i], &infos[i]
		at := t.span(i)
		info.From, info.To = at.from, at.to
		info.State, info.Epoch = r.state, r.epoch
		if r.endpoint != nil {
			info.VM = r.endpoint.grant.vm
		}
	}
	c.moves.describe(infos)
	return infos
}
