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
	regions       regionList
	endpoints     []*endpoint // sessions may have connections to them
	removals      uint64      // number of removals from endpoints
	// epoch and writeEpoch are entered by sessions that use this table and have no earlier
	// requests pending: see session_refresh.go.
	epoch, writeEpoch uint64
	publication       *publication // nil: the table is the cache's first
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
		if n := len(runs); n > 0 && runs[n-1].to == x.from && t.regions.at(i-1).epoch == t.regions.at(i).epoch {
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
	e.Epoch = t.regions.at(int(at.from >> t.shift)).epoch
	return e
}

// on lists the regions on a grant.
func (t *table) on(g *grant) (regions []int) {
	for i, r := range t.regions.all() {
		if e := r.endpoint; e != nil && e.grant == g {
			regions = append(regions, i)
		}
	}
	return regions
}

// uses reports whether regions are on a VM.
func (t *table) uses(vm string) bool {
	return slices.ContainsFunc(t.grants(), func(g *grant) bool { return g.vm == vm })
}

// closeGaps says how the table gets rid of indexes that no region uses before ones that are used: the
// fewest regions move to them. But an index where something may still be written is not used again:
// then the regions behind it have to leave their grant.
func (t *table) closeGaps() (within []place, leave []int) {
	used := map[*grant][]bool{} // by index
	count := map[*grant]uint32{}
	for _, r := range t.regions.all() {
		if r.endpoint != nil {
			g := r.endpoint.grant
			if used[g] == nil {
				used[g] = make([]bool, len(g.tokens))
			}
			used[g][r.index] = true
			count[g]++
		}
	}
	limit := map[*grant]uint32{} // the first index that cannot be used again, or count
	for g, n := range count {
		limit[g] = 0
		for limit[g] < n && (used[g][limit[g]] || g.hasLived(limit[g])) {
			limit[g]++
		}
	}
	gap := map[*grant]uint32{} // no unused index is before it
	for i, r := range t.regions.all() {
		if r.endpoint == nil {
			continue
		}
		switch g := r.endpoint.grant; {
		case limit[g] < count[g] && r.index > limit[g]:
			leave = append(leave, i)
		case r.index >= count[g]:
			for used[g][gap[g]] {
				gap[g]++
			}
			within = append(within, place{i, r.endpoint, gap[g]})
			gap[g]++
		}
	}
	return within, leave
}

// placeAt returns the place of a region at an endpoint, or nil.
func (t *table) placeAt(e *endpoint) *place {
	for i, r := range t.regions.all() {
		if r.endpoint == e {
			return &place{i, e, r.index}
		}
	}
	return nil
}

// clone returns a copy to change and publish.
func (t *table) clone() *table {
	n := *t
	n.regions, n.endpoints = t.regions.clone(), slices.Clone(t.endpoints)
	return &n
}

// resize sets the number of regions and the capacity. New regions have no place yet. If the
// last region grows by zeros, its origin has no copy of it any more.
func (t *table) resize(regions int, capacity int64) {
	if last := t.regions.at(t.regions.len() - 1); capacity > t.capacity && t.capacity&t.mask != 0 && last.origin != nil {
		last.origin.written.Store(true)
	}
	t.capacity = capacity
	t.regions.resize(regions)
}

// configure sets the configuration. A different one applies to the current number of regions.
func (t *table) configure(c Configuration) {
	if c != t.configuration {
		t.configuration, t.per = c, t.regions.len()
	}
}

// lost lists the regions that do not answer, in ascending order.
func (t *table) lost() (regions []int) {
	for i, r := range t.regions.all() {
		if r.endpoint == nil {
			regions = append(regions, i)
		}
	}
	return regions
}

// grants lists the grants with regions, in the order of addresses.
func (t *table) grants() (grants []*grant) {
	listed := map[*grant]bool{}
	for _, r := range t.regions.all() {
		if e := r.endpoint; e != nil && !listed[e.grant] {
			listed[e.grant] = true
			grants = append(grants, e.grant)
		}
	}
	return grants
}

// connected lists the grants that sessions may use: those with regions, then others.
func (t *table) connected() []*grant {
	grants := t.grants()
	for _, e := range t.endpoints {
		if !slices.Contains(grants, e.grant) {
			grants = append(grants, e.grant)
		}
	}
	return grants
}

// fills reports whether the table uses all memory of the grants.
func (t *table) fills(grants []*grant) bool {
	free := map[*grant]int{}
	for _, g := range grants {
		free[g] = int(g.regions.Load())
	}
	for _, r := range t.regions.all() {
		for _, e := range []*endpoint{r.endpoint, r.mirror} {
			if e != nil {
				free[e.grant]--
			}
		}
	}
	return !slices.ContainsFunc(grants, func(g *grant) bool { return free[g] > 0 })
}

// idle lists the endpoints that are no region's place or mirror.
func (t *table) idle() []*endpoint {
	used := map[*endpoint]bool{}
	for _, r := range t.regions.all() {
		used[r.endpoint], used[r.mirror] = true, true
	}
	return slices.DeleteFunc(slices.Clone(t.endpoints), func(e *endpoint) bool { return used[e] })
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
	infos := make([]RegionInfo, t.regions.len())
	for i, r := range t.regions.all() {
		info := &infos[i]
		at := t.span(i)
		info.From, info.To = at.from, at.to
		info.State, info.Epoch = r.state, r.epoch
		if r.endpoint != nil {
			info.VM = r.endpoint.grant.vm
		}
		if m := r.moving; m != nil {
			info.Target, info.Copied = m.to.endpoint.grant.vm, m.copied.Load()
		}
	}
	return infos
}
