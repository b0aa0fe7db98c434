package plan

import "math"

// cost orders plans: by price, and at one price by the number of VMs. Both are
// packed into one word, so that costs can be added and compared in one step:
//
//	price << 17 | VMs
type cost int64

const (
	vmBits = 17 // a cache has at most 65,536 regions, and so as many VMs
	never  = cost(math.MaxInt64 / 2)
)

func costOf(p Price, vms int) cost {
	if p >= Price(never>>vmBits) {
		return never
	}
	return cost(p)<<vmBits | cost(vms)
}

func (c cost) price() Price { return Price(c >> vmBits) }
func (c cost) vms() int     { return int(c & (1<<vmBits - 1)) }

// plus stays at never. Every price is at most MaxPrice, so that no sum overflows
// before it gets there.
func (a cost) plus(b cost) cost { return min(a+b, never) }

// item is a VM type as covering sees it.
type item struct {
	regions   int // that one VM holds; at least 1
	price     Price
	available int
}

// cover is the table of the cheapest ways to have VMs of some types hold x regions
// or more, for each x: a knapsack that is filled from below. VMs may stay partly
// empty, as they cost the same.
//
// All that items hold is a multiple of unit, or the whole demand, so the table has
// steps of unit regions. An item of which there are enough goes in by one pass that
// may take it again and again; one of which there are few goes in by passes that
// take 1, 2, 4, … of it, once each.
type cover struct {
	unit   int
	least  []cost // by units
	passes []pass
}

// pass remembers for which x it took its VMs: one bit for each. It takes them where
// that is no dearer, so that the items that went in last are preferred.
type pass struct {
	item  int
	vms   int // taken at a time
	cost  cost
	units int // that they hold
	again bool
	took  []uint64
}

// newCover builds the table for up to regions. Of equal ways it prefers those with
// more VMs of earlier items.
func newCover(items []item, regions int) *cover {
	c := &cover{unit: unitOf(items, regions)}
	units := (regions + c.unit - 1) / c.unit
	c.least = make([]cost, units+1)
	for x := 1; x <= units; x++ {
		c.least[x] = never
	}
	for _, p := range passesOf(items, c.unit, units, units) {
		c.add(p)
	}
	return c
}

// unitOf is what all that items hold is a multiple of, if it is less than the demand.
func unitOf(items []item, regions int) int {
	unit := regions
	for _, it := range items {
		if it.regions < regions {
			unit = gcd(unit, it.regions)
		}
	}
	return unit
}

// passesOf puts the items into a table, those first that are preferred least. No plan
// has more than vms VMs.
func passesOf(items []item, unit, units, vms int) []pass {
	var all []pass
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		each := min((it.regions+unit-1)/unit, units)
		if it.available >= min((units+each-1)/each, vms) {
			all = append(all, pass{item: i, vms: 1, cost: costOf(it.price, 1), units: each, again: true})
			continue
		}
		for n, left := 1, it.available; left > 0; n *= 2 {
			n = min(n, left)
			left -= n
			all = append(all, pass{item: i, vms: n, cost: costOf(it.price*Price(n), n), units: min(each*n, units)})
		}
	}
	return all
}

// add makes one pass over the table. It runs upwards where it may build on what it
// has taken already, and downwards where it may not.
func (c *cover) add(p pass) {
	p.took = make([]uint64, len(c.least)/64+1)
	x, end, step := len(c.least)-1, 0, -1
	if p.again {
		x, end, step = 1, len(c.least), 1
	}
	for ; x != end; x += step {
		if with := c.least[max(0, x-p.units)] + p.cost; with <= c.least[x] {
			c.least[x] = with
			p.took[x/64] |= 1 << (x % 64)
		}
	}
	c.passes = append(c.passes, p)
}

// at is the least cost to hold so many regions.
func (c *cover) at(regions int) cost { return c.least[(regions+c.unit-1)/c.unit] }

// counts says how many VMs of each item that takes.
func (c *cover) counts(regions, items int) []int {
	counts := make([]int, items)
	x := (regions + c.unit - 1) / c.unit
	for i := len(c.passes) - 1; i >= 0 && x > 0; i-- {
		p := &c.passes[i]
		for x > 0 && p.took[x/64]>>(x%64)&1 == 1 {
			counts[p.item] += p.vms
			x = max(0, x-p.units)
			if !p.again {
				break
			}
		}
	}
	return counts
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
