package plan

// site is what stands at one distance, and what the demand is there.
type site struct {
	need
	distance int
	far      bool  // than the VMs that the cache has
	servers  []int // in the order of their age
	offers   []int // in the order of their names
	room     room  // for the VMs of offers

	fits map[candidate]fit
	best best
}

// candidate is a server or an offer, by its index; the other one is -1.
type candidate struct{ server, offer int }

// best is the cheapest way to hold the demand at one site.
type best struct {
	cost     cost
	servers  []taken
	launched []launch
}

type launch struct{ offer, regions, vms int }

// solve finds the site's best.
func (s *site) solve(offers []Offer, servers []Server) {
	s.best = s.within(offers, servers, false)
	for _, t := range s.best.servers {
		if most := s.cautious(servers[t.server]); servers[t.server].Fresh && t.n > most {
			if b := s.within(offers, servers, true); b.cost.price() <= s.best.cost.price() && b.vms() <= s.best.vms() {
				s.best = b
			}
			return
		}
	}
}

// vms counts the VMs to be launched.
func (b best) vms() int {
	n := 0
	for _, l := range b.launched {
		n += l.vms
	}
	return n
}

// cautious is how many regions one cache gets of a fresh server.
func (s *site) cautious(srv Server) int {
	return int(min(srv.Memory/2/s.RegionSize, uint64(s.Regions)))
}

// within finds the best plan that has no more VMs than it may. The cheapest one of
// all does where it has few enough, as almost always.
func (s *site) within(offers []Offer, servers []Server, cautious bool) best {
	items, of := s.items(offers)
	bins := s.bins(servers, cautious)
	f := cheapest(items, bins, s.Regions)
	if f.cost != never && f.cost.vms() > s.MaxVMs {
		f = few(items, bins, s.Regions, s.MaxVMs)
	}
	if f.cost != never && !s.room.holds(items, f.counts, s.Regions-f.shared()) {
		f = s.room.cheapest(items, bins, s.Regions, s.MaxVMs)
	}
	b := best{cost: f.cost, servers: f.servers}
	for k, n := range f.counts {
		if n > 0 {
			b.launched = append(b.launched, launch{offer: of[k], regions: items[k].regions, vms: n})
		}
	}
	return b
}

// bins are the servers that have room.
func (s *site) bins(servers []Server, cautious bool) []bin {
	var bins []bin
	for _, i := range s.servers {
		srv := servers[i]
		n := s.fits[candidate{i, -1}].regions
		if cautious && srv.Fresh {
			n = min(n, s.cautious(srv))
		}
		if n > 0 {
			bins = append(bins, bin{server: i, regions: n, price: srv.region(s.RegionSize)})
		}
	}
	return bins
}

// items are the VM types that have room, and the offer of each.
func (s *site) items(offers []Offer) ([]item, []int) {
	var items []item
	var of []int
	for _, i := range s.offers {
		o := offers[i]
		n := s.fits[candidate{-1, i}].regions
		if n == 0 {
			continue
		}
		it := s.item(o, n)
		it.available = min(it.available, s.Regions)
		items, of = append(items, it), append(of, i)
	}
	return items, of
}

// filling is a way to hold a number of regions.
type filling struct {
	cost    cost
	servers []taken
	counts  []int // VMs to be launched, of each item
}

// shared is how many regions the servers hold.
func (f filling) shared() int {
	n := 0
	for _, t := range f.servers {
		n += t.n
	}
	return n
}

// cheapest weighs what the servers hold against what has to be launched, over all
// ways to divide the regions between them.
func cheapest(items []item, bins []bin, regions int) filling {
	return divide(newSharing(bins, regions), newCover(items, regions), regions, len(items))
}

func divide(shared *sharing, launched *cover, regions, items int) filling {
	f, on := filling{cost: never}, 0
	for n := shared.most(); n >= 0; n-- { // of equals, what the servers that are there can hold
		if c := shared.least[n].plus(launched.at(regions - n)); c < f.cost {
			f.cost, on = c, n
		}
	}
	if f.cost != never {
		f.servers, f.counts = shared.take(on), launched.counts(regions-on, items)
	}
	return f
}

// parts cuts the demand into those of the best: each VM is filled before the next,
// so that the last one has what is left over, for the cache to grow (R72).
func (s *site) parts(offers []Offer, servers []Server) []Part {
	var parts []Part
	left := s.Regions
	for _, t := range s.best.servers {
		parts = append(parts, Part{
			Server: t.server, Offer: -1, Regions: t.n, Cores: s.cores(t.n), Price: servers[t.server].Share(t.n, s.RegionSize),
		})
		left -= t.n
	}
	for _, l := range s.best.launched {
		for range l.vms {
			n := min(l.regions, left)
			parts = append(parts, Part{Server: -1, Offer: l.offer, Regions: n, Cores: s.cores(n), Price: offers[l.offer].Price})
			left -= n
		}
	}
	return parts
}
