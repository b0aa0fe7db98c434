package plan

import (
	"cmp"
	"slices"
)

// Bounds of the table that finds the cheapest plan with a bounded number of VMs: its number
// of cells, of 16 bytes each, and the number of cell visits. A larger table would delay
// other calls too long.
const (
	maxCells = 1 << 21
	maxLooks = 1 << 25
)

// few finds the cheapest way to hold the regions with at most vms VMs.
func few(items []item, bins []bin, regions, vms int) filling {
	if t := newBounded(items, bins, regions, vms); t != nil {
		return t.cheapest(len(items))
	}
	return roughly(items, bins, regions, vms)
}

// roughly is few for tables that are too large. It ignores the smallest VMs, each time
// twice as large ones, and at last takes the fewest VMs. The result may be dearer than
// necessary, but there is one whenever vms VMs can hold the regions.
func roughly(items []item, bins []bin, regions, vms int) filling {
	enough := (regions + vms - 1) / vms
	for least := 2; least < 2*enough; least *= 2 {
		if f := withLarge(items, bins, regions, min(least, enough)); f.cost != never && f.cost.vms() <= vms {
			return f
		}
	}
	return fewest(items, bins, regions, vms)
}

// withLarge is cheapest, restricted to VMs that hold at least least regions.
func withLarge(items []item, bins []bin, regions, least int) filling {
	large := slices.Clone(items)
	for i := range large {
		if large[i].regions < least {
			large[i].available = 0
		}
	}
	return cheapest(large, slices.DeleteFunc(slices.Clone(bins), func(b bin) bool { return b.regions < least }), regions)
}

// bounded is the table of the cheapest ways to hold x regions or more with at most k VMs,
// for each k and x. VMs to be launched are added as in [cover], with a second dimension.
// Servers are added after them, the dearest first: a cheapest plan fills all its servers
// but the dearest one, so the first server that is taken may take any number of regions,
// and each later one takes all it can.
type bounded struct {
	unit, units, vms int
	launched, shared []cost // by k and x; shared has at least one server
	items            []pass
	bins             []bin // the dearest first
	full, partly     [][]uint64
}

// newBounded returns nil if the table would be too large.
func newBounded(items []item, bins []bin, regions, vms int) *bounded {
	t := &bounded{unit: 1, vms: vms}
	if len(bins) == 0 {
		t.unit = unitOf(items, regions)
	}
	t.units = (regions + t.unit - 1) / t.unit
	t.items = passesOf(weightless(items), t.unit, t.units, vms)
	t.bins = slices.Clone(bins)
	slices.SortStableFunc(t.bins, func(a, b bin) int {
		return cmp.Or(cmp.Compare(b.price, a.price), cmp.Compare(b.server, a.server))
	})
	cells := (vms + 1) * (t.units + 1)
	if cells > maxCells || cells*(len(t.items)+2*len(t.bins)) > maxLooks {
		return nil
	}
	t.launched = make([]cost, cells)
	for i := range t.launched {
		if i%(t.units+1) > 0 {
			t.launched[i] = never
		}
	}
	for i := range t.items {
		t.launch(&t.items[i])
	}
	t.shared = slices.Repeat([]cost{never}, cells)
	for _, b := range t.bins {
		t.share(b)
	}
	return t
}

func (t *bounded) cell(k, x int) int { return k*(t.units+1) + x }

// launch adds one VM type. If the type may be taken repeatedly, it goes towards more VMs,
// so that it builds on VMs already taken in this pass.
func (t *bounded) launch(p *pass) {
	p.took = make([]uint64, len(t.launched)/64+1)
	k, end, step := t.vms, p.vms-1, -1
	if p.again {
		k, end, step = 1, t.vms+1, 1
	}
	for ; k != end; k += step {
		for x := 1; x <= t.units; x++ {
			at := t.cell(k, x)
			if with := t.launched[t.cell(k-p.vms, max(0, x-p.units))].plus(p.cost); with != never && with <= t.launched[at] {
				t.launched[at] = with
				set(p.took, at)
			}
		}
	}
}

// share adds one server.
func (t *bounded) share(b bin) {
	full, partly := make([]uint64, len(t.shared)/64+1), make([]uint64, len(t.shared)/64+1)
	all := costOf(b.price*Price(b.regions), 1)
	from := make([]int, 0, t.units+1) // of the last b.regions cells, those that may be the cheapest predecessor
	for k := t.vms; k >= 1; k-- {
		from = from[:0]
		for x := 1; x <= t.units; x++ {
			y := x - 1
			if here := t.launched[t.cell(k-1, y)]; here != never {
				for len(from) > 0 {
					last := from[len(from)-1]
					if last >= x-b.regions && t.launched[t.cell(k-1, last)]+costOf(b.price*Price(y-last), 0) <= here {
						break
					}
					from = from[:len(from)-1]
				}
				from = append(from, y)
			}
			if len(from) > 0 && from[0] < x-b.regions {
				from = from[1:]
			}
			at := t.cell(k, x)
			if x >= b.regions {
				if with := t.shared[t.cell(k-1, x-b.regions)].plus(all); with != never && with <= t.shared[at] {
					t.shared[at] = with
					set(full, at)
				}
			}
			if len(from) > 0 {
				if with := t.launched[t.cell(k-1, from[0])].plus(costOf(b.price*Price(x-from[0]), 1)); with < t.shared[at] {
					t.shared[at] = with
					set(partly, at)
				}
			}
		}
	}
	t.full, t.partly = append(t.full, full), append(t.partly, partly)
}

// cheapest returns the least cost to hold all regions, the regions of each server, and the
// number of VMs to launch of each item.
func (t *bounded) cheapest(items int) filling {
	k, x := t.vms, t.units
	least := t.launched[t.cell(k, x)]
	var servers []taken
	if left := t.shared[t.cell(k, x)]; left <= least && left != never {
		least = left
		k, x, servers = t.servers(k, x)
	}
	counts := make([]int, items)
	if least == never {
		return filling{cost: never}
	}
	for i := len(t.items) - 1; i >= 0 && x > 0; i-- {
		p := &t.items[i]
		for x > 0 && has(p.took, t.cell(k, x)) {
			counts[p.item] += p.vms
			k, x = k-p.vms, max(0, x-p.units)
			if !p.again {
				break
			}
		}
	}
	return filling{least, servers, counts}
}

// servers traces the passes of servers back. It returns the cell of the VMs to be launched.
func (t *bounded) servers(k, x int) (int, int, []taken) {
	var servers []taken
	left := t.shared[t.cell(k, x)]
	for i := len(t.bins) - 1; i >= 0; i-- {
		b, at := t.bins[i], t.cell(k, x)
		switch {
		case has(t.partly[i], at): // partly was set after full, and was cheaper
			for n := 1; n <= min(b.regions, x); n++ {
				if t.launched[t.cell(k-1, x-n)].plus(costOf(b.price*Price(n), 1)) == left {
					return k - 1, x - n, append(servers, taken{b, n})
				}
			}
		case has(t.full[i], at):
			servers = append(servers, taken{b, b.regions})
			left -= costOf(b.price*Price(b.regions), 1)
			k, x = k-1, x-b.regions
		}
	}
	return k, x, servers
}

func set(bits []uint64, i int)      { bits[i/64] |= 1 << (i % 64) }
func has(bits []uint64, i int) bool { return bits[i/64]>>(i%64)&1 == 1 }

// fewest holds the regions with as few VMs as possible: the largest first, of equally large
// ones the cheapest.
func fewest(items []item, bins []bin, regions, vms int) filling {
	type choice struct {
		regions, available int
		price              Price
		bin, item          int
	}
	var all []choice
	for i, b := range bins {
		all = append(all, choice{b.regions, 1, b.price * Price(b.regions), i, -1})
	}
	for i, it := range items {
		all = append(all, choice{it.regions, it.available, it.price, -1, i})
	}
	slices.SortStableFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.regions, a.regions), cmp.Compare(a.price, b.price))
	})
	sum := cost(0)
	var servers []taken
	counts := make([]int, len(items))
	for _, c := range all {
		for n := 0; n < c.available && vms > 0 && regions > 0; n++ {
			vms--
			if c.item >= 0 {
				counts[c.item]++
				sum = sum.plus(costOf(c.price, 1))
			} else {
				takes := min(c.regions, regions)
				servers = append(servers, taken{bins[c.bin], takes})
				sum = sum.plus(costOf(bins[c.bin].price*Price(takes), 1))
			}
			regions -= c.regions
		}
	}
	if regions > 0 {
		return filling{cost: never}
	}
	return filling{sum, servers, counts}
}
