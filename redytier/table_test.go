package redytier

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// The fewest regions move, so that the unused indexes of each grant are its last ones. Where
// something may still be written no region moves to: those behind leave the grant.
func TestCloseGaps(t *testing.T) {
	const regions = 6
	newEndpoint := func() *endpoint {
		return &endpoint{grant: &grant{tokens: make([]fabric.Token, regions), lived: make([]atomic.Bool, regions)}}
	}
	a, b := newEndpoint(), newEndpoint()
	again := &endpoint{grant: a.grant} // another configuration
	for _, c := range []struct {
		name   string
		places []place // by region
		failed []place // at these a pull or a fill has failed
		within []place
		leave  []int
	}{
		{name: "none", places: []place{{endpoint: a, index: 0}, {endpoint: b, index: 0}, {endpoint: a, index: 1}}},
		{name: "another order", places: []place{{endpoint: a, index: 1}, {endpoint: a, index: 0}}},
		{name: "two endpoints of a grant", places: []place{{endpoint: a, index: 0}, {endpoint: again, index: 1}}},
		{name: "lost regions", places: []place{{}, {endpoint: a, index: 0}, {}}},
		{name: "first is unused", places: []place{{endpoint: a, index: 2}, {endpoint: b, index: 0}, {endpoint: a, index: 1}}, within: []place{{0, a, 0}}},
		{
			name:   "two gaps",
			places: []place{{endpoint: a, index: 5}, {endpoint: a, index: 0}, {endpoint: again, index: 3}},
			within: []place{{0, a, 1}, {2, again, 2}},
		},
		{name: "in each grant", places: []place{{endpoint: a, index: 1}, {endpoint: b, index: 1}}, within: []place{{0, a, 0}, {1, b, 0}}},
		{
			name:   "a pull has failed",
			places: []place{{endpoint: a, index: 5}, {endpoint: a, index: 0}, {endpoint: b, index: 1}, {endpoint: a, index: 3}},
			failed: []place{{endpoint: a, index: 1}},
			within: []place{{2, b, 0}}, leave: []int{0, 3},
		},
		{
			name:   "a pull has failed behind",
			places: []place{{endpoint: a, index: 5}, {endpoint: a, index: 0}},
			failed: []place{{endpoint: a, index: 3}},
			within: []place{{0, a, 1}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newTable(int64(len(c.places))<<12, 1<<12, Configuration{})
			table.regions.resize(len(c.places))
			for _, e := range []*endpoint{a, b} {
				for i := range uint32(regions) {
					e.grant.setLived(i, true)
				}
			}
			for _, p := range c.failed {
				p.endpoint.grant.setLived(p.index, false)
			}
			put := func(i int, p place) {
				if p.endpoint != nil {
					table.regions.edit(i).put(p)
				}
			}
			for i, p := range c.places {
				put(i, p)
			}
			within, leave := table.closeGaps()
			if !slices.Equal(within, c.within) || !slices.Equal(leave, c.leave) {
				t.Errorf("places %+v, and %d leave; want %+v and %d", within, leave, c.within, c.leave)
			}
			for _, p := range within {
				put(p.region, p)
			}
			for _, region := range leave {
				put(region, place{endpoint: newEndpoint()})
			}
			if within, leave := table.closeGaps(); len(within)+len(leave) > 0 {
				t.Errorf("then places %+v, and %d leave", within, leave)
			}
		})
	}
}
