package redytier

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// This file tells the manager where the cache's regions are, for the next client, and reads what
// a former client has told.

// placesIn returns where a table's regions are, in a list of grants. Those that are moving, in
// ascending order, have no place.
func placesIn(t *table, grants []*grant, moving []int) (all []*managerv1.Places) {
	number := make(map[*grant]uint32, len(grants))
	for i, g := range grants {
		number[g] = uint32(i) + 1
	}
	for i, r := range t.regions.all() {
		p := &managerv1.Places{Regions: 1}
		if _, moves := slices.BinarySearch(moving, i); !moves && r.endpoint != nil && number[r.endpoint.grant] > 0 {
			p.Grant, p.Index = number[r.endpoint.grant], r.index
		}
		if n := len(all); n > 0 && all[n-1].Grant == p.Grant && (p.Grant == 0 || all[n-1].Index+all[n-1].Regions == p.Index) {
			all[n-1].Regions++
		} else {
			all = append(all, p)
		}
	}
	return all
}

// runsOf returns the regions of several lists, each ascending, as runs.
func runsOf(lists ...[]int) *managerv1.RegionRuns {
	regions := slices.Concat(lists...)
	slices.Sort(regions)
	all := new(managerv1.RegionRuns)
	for _, i := range regions {
		if n := len(all.Runs); n > 0 && int(all.Runs[n-1].First+all.Runs[n-1].Regions) == i {
			all.Runs[n-1].Regions++
		} else {
			all.Runs = append(all.Runs, &managerv1.RegionRun{First: uint32(i), Regions: 1})
		}
	}
	return all
}

// placed is a place of a region, before there are endpoints.
type placed struct {
	region int
	grant  int // position in the manager's list
	index  uint32
}

// placedBy checks the places that the manager knows of a number of regions, and returns them. A
// region without one is lost.
func placedBy(places []*managerv1.Places, grants []*managerv1.Grant, regions int) (all []placed, err error) {
	used := make(map[placed]bool)
	next := 0
	for _, p := range places {
		if p.GetRegions() == 0 || int64(p.GetRegions()) > int64(regions-next) {
			return nil, fmt.Errorf("the manager knows places of more than %d regions", regions)
		}
		if int64(p.GetGrant()) > int64(len(grants)) {
			return nil, fmt.Errorf("the manager names grant %d of %d", p.GetGrant(), len(grants))
		}
		for i := range p.GetRegions() {
			at := placed{grant: int(p.GetGrant()) - 1, index: p.GetIndex() + i}
			switch {
			case at.grant < 0:
			case at.index < p.GetIndex() || at.index >= grants[at.grant].GetRegions():
				return nil, fmt.Errorf("the manager names region %d of grant %s, which has %d", at.index, grants[at.grant].GetId(), grants[at.grant].GetRegions())
			case used[at]:
				return nil, errors.New("the manager knows the same place of two regions")
			default:
				used[at] = true
				all = append(all, placed{region: next, grant: at.grant, index: at.index})
			}
			next++
		}
	}
	return all, nil
}
