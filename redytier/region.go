package redytier

import "sync/atomic"

// region is one virtual region, as a table describes it. It is changed by the methods in this file
// and by nothing else. A region gets a place only for a proof that the place has its bytes: pulled,
// for a move, and filled otherwise.
//
//	        begin           copy           arrive
//	Stable ───────► Quiescing ──► Copying ────────► Stable, at its new place or with a mirror there
//	   ▲                │            │
//	   └──────stay──────┴────────────┘
//
//	      lose          recover             restore
//	any ───────► Lost ──────────► Recovering ───────► Stable, at its new place
//	               ▲                   │
//	               └──────giveUp───────┘
//
//	State       place  requests                               what ends it
//	Stable      yes    go on                                  a move; a loss
//	Quiescing   yes    those that gate holds wait             all writes from before have ended
//	Copying     yes    those that gate holds wait             the new place has pulled all of it, or has failed
//	Lost        no     end with cause, or wait (WaitForLost)  the application knows of it, or there is a copy
//	Recovering  no     end with cause, or wait (WaitForLost)  the new memory is filled
type region struct {
	state    RegionState
	endpoint *endpoint // the region's place is index of its grant; nil: none, and cause says why
	index    uint32
	cause    *error

	// mirror, if set, gets every write as well: it is the region's place after a move that is
	// not committed yet (A38).
	mirror      *endpoint
	mirrorIndex uint32
	twins       *twins // writes to both

	gate   gate
	moving *moving // the move, while Quiescing or Copying
	origin *origin // nil: not filled from a file

	epoch        uint64 // number of losses of its memory
	lossReported bool   // lost, and the application was notified of DataLost
}

// RegionState is the state of a region (A45): see the drawing at region.
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

// gate is the set of kinds of requests that sessions hold.
type gate uint8

const (
	holdWrites gate = 1 << iota // and reads that overlap a held request (A41)
	holdReads
)

// moving is one attempt to move a region.
type moving struct {
	from, to place
	copied   atomic.Int64 // bytes
}

// begin begins a move, or returns nil if the region has no place to move from.
func (t *table) begin(to place, g gate) *moving {
	r := t.regions.at(to.region)
	if r.state != Stable {
		return nil
	}
	m := &moving{from: place{region: to.region, endpoint: r.endpoint, index: r.index}, to: to}
	r = t.regions.edit(to.region)
	r.state, r.gate, r.moving = Quiescing, g, m
	return m
}

// of reports whether a region is still in a move. One that was lost is in none.
func (t *table) of(m *moving) bool { return t.regions.at(m.to.region).moving == m }

// copy begins the copying of a region whose writes have ended.
func (t *table) copy(m *moving) {
	if t.of(m) {
		t.regions.edit(m.to.region).state = Copying
	}
}

// stay ends a move without effect.
func (t *table) stay(m *moving) {
	if t.of(m) {
		r := t.regions.edit(m.to.region)
		r.state, r.gate, r.moving = Stable, 0, nil
	}
}

// arrive ends a move whose region was pulled, and reports whether it has an effect: the
// region is still in that move, so it was not lost and its gate did not open, and its new
// memory is not lost. The new place becomes a mirror, or the region's only place.
//
// There is no other way from a place to another one, or to a mirror, and pulled has no other
// source than Cache.pull. So what was not pulled whole is never read.
func (t *table) arrive(p pulled, mirror bool) bool {
	m := p.move
	if m == nil || !t.of(m) || m.to.endpoint.grant.lost.Load() != nil {
		return false
	}
	t.stay(m)
	if r := t.regions.edit(m.to.region); mirror {
		r.mirror, r.mirrorIndex, r.twins = m.to.endpoint, m.to.index, new(twins)
	} else {
		r.put(m.to)
	}
	return true
}

// switchover makes the region's mirror, for which arrive has demanded the proof, its only place.
func (r *region) switchover() { r.put(place{endpoint: r.mirror, index: r.mirrorIndex}) }

// dropMirrors removes the mirrors of those regions with one for which drop is true.
func (t *table) dropMirrors(drop func(*region) bool) {
	for i, r := range t.regions.all() {
		if r.mirror != nil && drop(r) {
			r := t.regions.edit(i)
			r.mirror, r.twins = nil, nil
		}
	}
}

// reconnect has regions reached over other endpoints of their grants.
func (t *table) reconnect(instead map[*grant]*endpoint) {
	for i, r := range t.regions.all() {
		if r.endpoint != nil {
			t.regions.edit(i).endpoint = instead[r.endpoint.grant]
		}
	}
}

// put makes p the region's only place.
func (r *region) put(p place) {
	*r = region{endpoint: p.endpoint, index: p.index, origin: r.origin, epoch: r.epoch}
	p.endpoint.grant.placed.Store(true)
	p.endpoint.grant.setLived(p.index, true)
}

// lose takes the region's place, for a cause.
func (r *region) lose(cause *error) {
	*r = region{state: Lost, cause: cause, origin: r.origin, epoch: r.epoch + 1}
}

// lack says that the region has had no place yet, for a cause. reported: its loss needs no report.
func (r *region) lack(cause *error, reported bool) {
	*r = region{state: Lost, cause: cause, lossReported: reported}
}

// reset makes the region new.
func (r *region) reset() { *r = region{} }

// setReported notes that the application was notified of the region's loss.
func (r *region) setReported() { r.lossReported = true }

// fromFile says that all regions are filled from Config.File.
func (t *table) fromFile() {
	for i := range t.regions.len() {
		t.regions.edit(i).origin = new(origin)
	}
}

// recover says that the memory of lost regions is being replaced.
func (t *table) recover(regions []int) { t.change(regions, Lost, Recovering) }

// giveUp ends the replacement of those that were not restored.
func (t *table) giveUp(regions []int) { t.change(regions, Recovering, Lost) }

func (t *table) change(regions []int, from, to RegionState) {
	for _, i := range regions {
		if t.regions.at(i).state == from {
			t.regions.edit(i).state = to
		}
	}
}

// filled is the proof that a place has the bytes of its region without a move. It is made by
//
//	populateGrant  a source's bytes were written there
//	zeroed         the bytes are zeros
//	takeUp         the former client has told the manager so
//
// and the zero value proves nothing.
type filled struct{ at place }

// zeroed returns the proof for places in memory that was lent just now, which its server has zeroed.
// It is for regions that are new, or whose loss was reported.
func zeroed(places []place) (all []filled) {
	for _, p := range places {
		all = append(all, filled{p})
	}
	return all
}

// restore gives a region that is new or lost a place, and reports whether that has an effect: the
// region has no place, and the new one is not lost.
func (t *table) restore(f filled) bool {
	p := f.at
	if p.endpoint == nil || p.endpoint.grant.lost.Load() != nil || t.regions.at(p.region).endpoint != nil {
		return false
	}
	t.regions.edit(p.region).put(p)
	return true
}
