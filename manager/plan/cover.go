package plan

import (
	"math"
	"slices"
)

// cost orders plans by price, then by the number of VMs. Both are packed into one word, so
// that costs are added and compared in one step:
//
//	price << 17 | VMs
type cost int64

const (
	vmBits = 17 // a cache has at most 65,536 regions, and so at most as many VMs
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

// plus saturates at never. No price exceeds MaxPrice, so the sum does not overflow before.
func (a cost) plus(b cost) cost { return min(a+b, never) }

// item is a VM type in a table.
type item struct {
	regions   int // that one VM holds; at least 1
	price     Price
	available int
	memory    int // units of [room] that each launched VM takes
	ready     int // of the available ones, those that need not be launched
}

// batch is a number of VMs of one item that a pass takes together.
type batch struct{ vms, memory int }

// batches splits the available VMs into 1, 2, 4, …, so that every number of them is a sum
// of batches. VMs that take room come first.
func (it item) batches() []batch {
	ready := it.available
	if it.memory > 0 {
		ready = min(it.ready, it.available)
	}
	var all []batch
	put := func(left, memory int) {
		for n := 1; left > 0; n *= 2 {
			n = min(n, left)
			left -= n
			all = append(all, batch{n, n * memory})
		}
	}
	put(it.available-ready, it.memory)
	put(ready, 0)
	return all
}

// cover is the table of the cheapest ways to hold x regions or more with VMs of some types,
// for each x: a knapsack that is filled from below. VMs may stay partly empty, as they cost
// the same.
//
// Each item holds a multiple of unit regions, or the whole demand, so the table has steps
// of unit regions. An item with enough VMs is added by one pass that may take it
// repeatedly; any other by passes that take 1, 2, 4, … VMs once each. If room is limited,
// there is one such table for each number of its units, from 0 on.
type cover struct {
	unit   int
	width  int    // of the table for one number of units of room
	room   room   // the total
	least  []cost // by units of room, then by units of regions
	passes []pass
}

// pass records in one bit for each x whether it took its VMs. It takes them if that is no
// dearer, so items added later are preferred.
type pass struct {
	item   int
	vms    int // taken together
	cost   cost
	units  int // units of regions that they hold
	memory int // units of room that they take
	again  bool
	took   []uint64
}

// newCover builds the table for up to regions. Of equally cheap ways it prefers those with
// more VMs of earlier items.
func newCover(items []item, regions int) *cover {
	c := coverOf(items, regions, anyRoom)
	c.fill(passesOf(weightless(items), c.unit, c.width-1, c.width-1))
	return c
}

// weightless returns the items without the room that they take.
func weightless(items []item) []item {
	items = slices.Clone(items)
	for i := range items {
		items[i].memory, items[i].ready = 0, 0
	}
	return items
}

// coverOf returns a table that is not filled.
func coverOf(items []item, regions int, r room) *cover {
	unit := unitOf(items, regions)
	return &cover{unit: unit, width: (regions+unit-1)/unit + 1, room: r}
}

func (c *cover) fill(passes []pass) {
	c.least = make([]cost, (c.room.units+1)*c.width)
	for i := range c.least {
		if i%c.width > 0 {
			c.least[i] = never
		}
	}
	for _, p := range passes {
		c.add(p)
	}
}

// unitOf returns the greatest common divisor of the items' regions and the demand.
func unitOf(items []item, regions int) int {
	unit := regions
	for _, it := range items {
		if it.regions < regions {
			unit = gcd(unit, it.regions)
		}
	}
	return unit
}

// passesOf returns the passes that add the items, the least preferred item first. No plan
// has more than vms VMs.
func passesOf(items []item, unit, units, vms int) []pass {
	var all []pass
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		each := min((it.regions+unit-1)/unit, units)
		if it.ready == 0 && it.available >= min((units+each-1)/each, vms) {
			all = append(all, pass{item: i, vms: 1, cost: costOf(it.price, 1), units: each, memory: it.memory, again: true})
			continue
		}
		for _, b := range it.batches() {
			all = append(all, pass{
				item: i, vms: b.vms, cost: costOf(it.price*Price(b.vms), b.vms), units: min(each*b.vms, units), memory: b.memory,
			})
		}
	}
	return all
}

// add makes one pass over the table: upwards if the pass may be taken repeatedly, downwards
// otherwise.
func (c *cover) add(p pass) {
	p.took = make([]uint64, len(c.least)/64+1)
	m, last, first, end, step := c.room.units, p.memory-1, c.width-1, 0, -1
	if p.again {
		m, last, first, end, step = p.memory, c.room.units+1, 1, c.width, 1
	}
	for ; p.memory <= c.room.units && m != last; m += step {
		row, from := c.least[m*c.width:(m+1)*c.width], c.least[(m-p.memory)*c.width:]
		for x := first; x != end; x += step {
			if with := from[max(0, x-p.units)] + p.cost; with <= row[x] {
				row[x] = with
				set(p.took, m*c.width+x)
			}
		}
	}
	c.passes = append(c.passes, p)
}

// at returns the least cost to hold so many regions.
func (c *cover) at(regions int) cost {
	if regions > c.room.regions {
		return never
	}
	return c.least[c.room.units*c.width+(regions+c.unit-1)/c.unit]
}

// counts returns the number of VMs of each item in that plan.
func (c *cover) counts(regions, items int) []int {
	counts := make([]int, items)
	m, x := c.room.units, (regions+c.unit-1)/c.unit
	for i := len(c.passes) - 1; i >= 0 && x > 0; i-- {
		p := &c.passes[i]
		for x > 0 && has(p.took, m*c.width+x) {
			counts[p.item] += p.vms
			m, x = m-p.memory, max(0, x-p.units)
			if !p.again {
				break
			}
		}
	}
	return counts
}

func gcd[T int | uint64](a, b T) T {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
