package manager

import (
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
)

// This file keeps where a cache's regions are, for the client that takes it up. The present
// client tells with Settle. It uses a region's new place as soon as the region has moved there,
// which is before its Settle. So the regions that a Reallocate is for have no certain place from
// the moment when memory is granted until a later Settle: an Attach between the two finds them
// without a place, and their bytes are lost. A region that moves within its grant is told without a
// place before. A place that the catalog names is therefore never
// one that its region has left.

// inOrder returns the places of regions that are in the order of the grants.
func inOrder(grants []*grant) []*managerv1.Places {
	all := make([]*managerv1.Places, 0, len(grants))
	for i, g := range grants {
		all = append(all, &managerv1.Places{Grant: uint32(i) + 1, Regions: g.regions})
	}
	return all
}

// checkPlaces checks the places of a Settle with these grants, of a cache with a number of
// regions: each region has one place at most, and each place one region.
func checkPlaces(places []*managerv1.Places, grants []settled, regions uint32) error {
	sum := uint64(0)
	used := make([][]bool, len(grants))
	for _, p := range places {
		if sum += uint64(p.GetRegions()); p.GetRegions() == 0 || sum > uint64(regions) {
			return fmt.Errorf("places of %d regions, with a run of %d: the cache has %d", sum, p.GetRegions(), regions)
		}
		if p.GetGrant() == 0 {
			continue
		}
		if uint64(p.GetGrant()) > uint64(len(grants)) {
			return fmt.Errorf("place in grant %d of %d", p.GetGrant(), len(grants))
		}
		at := p.GetGrant() - 1
		if has := grants[at].regions; uint64(p.GetIndex())+uint64(p.GetRegions()) > uint64(has) {
			return fmt.Errorf("places %d to %d of grant %s, which has %d", p.GetIndex(), uint64(p.GetIndex())+uint64(p.GetRegions())-1, grants[at].grant.id, has)
		}
		if used[at] == nil {
			used[at] = make([]bool, grants[at].regions)
		}
		for i := p.GetIndex(); i < p.GetIndex()+p.GetRegions(); i++ {
			if used[at][i] {
				return fmt.Errorf("two regions at place %d of grant %s", i, grants[at].grant.id)
			}
			used[at][i] = true
		}
	}
	return nil
}

// checkRuns checks the regions of a Reallocate.
func checkRuns(runs *managerv1.RegionRuns) error {
	for _, r := range runs.GetRuns() {
		if r.GetRegions() == 0 || uint64(r.GetFirst())+uint64(r.GetRegions()) > maxRegions {
			return fmt.Errorf("regions %d from number %d on: a cache has at most %d", r.GetRegions(), r.GetFirst(), maxRegions)
		}
	}
	if n := len(runs.GetRuns()); n > maxRegions {
		return fmt.Errorf("%d runs of regions: want at most %d", n, maxRegions)
	}
	return nil
}

// settledPlaces notes where the regions are by the present Settle. Called under mu.
func (ca *cache) settledPlaces(places []*managerv1.Places) {
	ca.places = places
	if ca.moving.GetChange() <= ca.change {
		ca.moving = nil
	}
}

// moves notes that regions may get places in the grants of a Reallocate; without runs, or for the
// whole cache, all of them. Called under mu.
func (ca *cache) moves(change uint64, runs *managerv1.RegionRuns, whole bool) {
	m := &catalogv1.Moving{Change: change, All: ca.moving.GetAll() || whole || runs == nil}
	if !m.All {
		m.Runs = slices.Concat(ca.moving.GetRuns(), runs.GetRuns())
		m.All = len(m.Runs) > maxMovingRuns
	}
	if m.All {
		m.Runs = nil
	}
	ca.moving = m
}

// maxMovingRuns bounds a cache's record while its Settles do not arrive: far below catalog.MaxBytes,
// at about ten bytes a run.
const maxMovingRuns = 1 << 14

// forgetMoved removes the places of regions that may have moved. Called under mu.
func (ca *cache) forgetMoved() {
	switch m := ca.moving; {
	case m == nil:
	case m.GetAll():
		ca.places = nil
	default:
		ca.places = without(ca.places, m.GetRuns())
	}
	ca.moving = nil
}

// without returns places without those of some regions.
func without(places []*managerv1.Places, runs []*managerv1.RegionRun) []*managerv1.Places {
	end := uint64(0) // of the regions with places
	for _, p := range places {
		end += uint64(p.GetRegions())
	}
	moved := make([]bool, min(end, maxRegions))
	for _, r := range runs {
		for i := uint64(r.GetFirst()); i < min(uint64(r.GetFirst())+uint64(r.GetRegions()), uint64(len(moved))); i++ {
			moved[i] = true
		}
	}
	var left []*managerv1.Places
	add := func(p *managerv1.Places) {
		if n := len(left); n > 0 {
			last := left[n-1]
			next := last.GetIndex() + last.GetRegions()
			if last.GetGrant() == p.GetGrant() && (p.GetGrant() == 0 || next == p.GetIndex()) {
				last.Regions += p.GetRegions()
				return
			}
		}
		left = append(left, p)
	}
	at := 0
	for _, p := range places {
		for i := range p.GetRegions() {
			if at >= len(moved) {
				return left
			}
			one := &managerv1.Places{Grant: p.GetGrant(), Index: p.GetIndex() + i, Regions: 1}
			if moved[at] || p.GetGrant() == 0 {
				one = &managerv1.Places{Regions: 1}
			}
			add(one)
			at++
		}
	}
	return left
}
