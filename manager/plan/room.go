package plan

import (
	"cmp"
	"math"
	"slices"
)

// maxRows bounds the units of room. If the common divisor of the VM types' sizes gives more
// units, the unit is doubled, and each VM's memory is rounded up to it.
const maxRows = 1 << 12

// room is the limit for all VMs to be launched together: memory in units, of which each
// [item] takes some; or, if all types are made to measure, a number of regions. Without a
// limit no item takes units.
type room struct {
	unit    uint64 // bytes; 0: memory is not counted
	units   int
	regions int
}

// anyRoom is the room of an allocator without a limit.
var anyRoom = room{regions: maxRegions}

func (n need) roomFor(offers []Offer, here []int) room {
	if n.Room == nil {
		return anyRoom
	}
	r := anyRoom
	for _, i := range here {
		if !offers[i].Fitted {
			r.unit = gcd(r.unit, offers[i].Memory)
		}
	}
	if r.unit == 0 {
		r.regions = int(min(*n.Room/n.RegionSize, maxRegions))
		return r
	}
	for *n.Room/r.unit > maxRows {
		r.unit *= 2
	}
	r.units = int(*n.Room / r.unit)
	return r
}

// item returns the item of an offer whose VMs hold so many regions each.
func (s *site) item(o Offer, regions int) item {
	it := item{regions: regions, price: o.Price, available: o.Available}
	if o.Available < 0 || o.Available > maxRegions {
		it.available = maxRegions
	}
	if s.room.unit > 0 {
		memory := o.Memory
		if o.Fitted {
			memory = uint64(regions) * s.RegionSize
		}
		it.memory, it.ready = int(min((memory-1)/s.room.unit, math.MaxInt32))+1, max(0, min(o.Ready, it.available))
		it.available = min(it.available, it.ready+s.room.units/it.memory)
	}
	return it
}

// holds reports whether the room suffices for these VMs, with so many regions.
func (r room) holds(items []item, counts []int, regions int) bool {
	units := 0
	for i, n := range counts {
		units += max(0, n-items[i].ready) * items[i].memory
	}
	return units <= r.units && regions <= r.regions
}

// cheapest is the function [cheapest] with at most vms VMs, within the room. It finds a way
// if there is one. The way may be dearer than necessary if the cheapest one has too many
// VMs or the table would be too large.
func (r room) cheapest(items []item, bins []bin, regions, vms int) filling {
	f := r.roomy(items, bins, regions, vms)
	if f.cost == never {
		return f
	}
	c := coverOf(items, regions, r)
	passes := passesOf(items, c.unit, c.width-1, c.width-1)
	if cells := (r.units + 1) * c.width; cells > maxCells || cells*len(passes) > maxLooks {
		return f
	}
	c.fill(passes)
	if cheap := divide(newSharing(bins, regions), c, regions, len(items)); cheap.cost.vms() <= vms {
		return cheap
	}
	return f
}

// roomy holds the regions with as few launched VMs as possible.
func (r room) roomy(items []item, bins []bin, regions, vms int) filling {
	bins = slices.Clone(bins)
	slices.SortStableFunc(bins, func(a, b bin) int {
		return cmp.Or(cmp.Compare(b.regions, a.regions), cmp.Compare(a.price, b.price))
	})
	t := newRoomiest(items, r, vms)
	launched, shared := -1, 0 // the best so far
	for j, held := 0, 0; j <= min(len(bins), vms); j++ {
		if k := slices.IndexFunc(t.most[:min(len(t.most), vms-j+1)], func(most int) bool { return held+most >= regions }); k >= 0 && (launched < 0 || k < launched) {
			launched, shared = k, j
		}
		if j < len(bins) {
			held += bins[j].regions
		}
	}
	if launched < 0 {
		return filling{cost: never}
	}
	f := filling{counts: t.counts(launched, len(items))}
	for _, b := range bins[:shared] {
		n := min(b.regions, regions)
		f.servers = append(f.servers, taken{b, n})
		f.cost = f.cost.plus(costOf(b.price*Price(n), 1))
		regions -= n
	}
	for i, n := range f.counts {
		f.cost = f.cost.plus(costOf(items[i].price*Price(n), n))
	}
	return f
}

// most returns the number of regions that vms VMs hold together; the elements of shared are
// the regions of servers.
func (r room) most(items []item, shared []int, vms int) int {
	slices.SortFunc(shared, func(a, b int) int { return cmp.Compare(b, a) })
	t := newRoomiest(items, r, vms)
	most := 0
	for j, held := 0, 0; j <= min(len(shared), vms); j++ {
		most = max(most, held+t.most[min(len(t.most)-1, vms-j)])
		if j < len(shared) {
			held += shared[j]
		}
	}
	return most
}

// roomiest is the table of the most regions that up to k VMs hold in m units of room, for
// each k and m. An item is added by passes that take 1, 2, 4, … VMs once each.
type roomiest struct {
	most   []int // by k, with all units of room
	width  int
	held   []int
	passes []pass
}

func newRoomiest(items []item, r room, vms int) *roomiest {
	passes, all := []pass(nil), 0
	for i, it := range items {
		it.available = min(it.available, vms)
		all += it.available
		for _, b := range it.batches() {
			passes = append(passes, pass{item: i, vms: b.vms, memory: b.memory, units: b.vms * it.regions})
		}
	}
	vms = min(vms, all)
	t := &roomiest{width: r.units + 1, held: make([]int, (vms+1)*(r.units+1)), passes: passes}
	for i := range t.passes {
		t.add(&t.passes[i], vms)
	}
	for k := range vms + 1 {
		t.most = append(t.most, min(r.regions, t.held[k*t.width+r.units]))
	}
	return t
}

func (t *roomiest) add(p *pass, vms int) {
	p.took = make([]uint64, len(t.held)/64+1)
	for k := vms; k >= p.vms; k-- {
		for m := t.width - 1; m >= p.memory; m-- {
			at := k*t.width + m
			if with := t.held[(k-p.vms)*t.width+m-p.memory] + p.units; with > t.held[at] {
				t.held[at] = with
				set(p.took, at)
			}
		}
	}
}

// counts returns the number of VMs of each item among up to k VMs.
func (t *roomiest) counts(k, items int) []int {
	counts := make([]int, items)
	m := t.width - 1
	for i := len(t.passes) - 1; i >= 0; i-- {
		if p := &t.passes[i]; has(p.took, k*t.width+m) {
			counts[p.item] += p.vms
			k, m = k-p.vms, m-p.memory
		}
	}
	return counts
}
