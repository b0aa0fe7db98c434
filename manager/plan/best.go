package plan

// site holds the servers and offers at one distance, and the demand's need there.
type site struct {
	need
	distance int
	far      bool  // farther away than the cache's VMs
	servers  []int // in order of age
	offers   []int // in order of name
	room     room  // for the VMs of offers
	// shared returns the regions of the largest servers of a pool for a need; nil: there is
	// no pool.
	shared func(need) []int

	serverFits []fit // by index of all servers; those of this site are set
	offerFits  []fit
	best       best
}

// best is the cheapest way to hold the demand at one site.
type best struct {
	cost     cost
	servers  []taken
	launched []launch
}

type launch struct{ offer, regions, vms int }

// solve sets the site's best plan.
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

// within finds the best plan with at most MaxVMs VMs. The unrestricted cheapest plan almost
// always has few enough.
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

// bins returns the servers that have room.
func (s *site) bins(servers []Server, cautious bool) []bin {
	var bins []bin
	for _, i := range s.servers {
		srv := servers[i]
		n := s.serverFits[i].regions
		if cautious && srv.Fresh {
			n = min(n, s.cautious(srv))
		}
		if n > 0 {
			bins = append(bins, bin{server: i, regions: n, price: srv.region(s.RegionSize)})
		}
	}
	return bins
}

// items returns the VM types that have room, and the index of each one's offer.
func (s *site) items(offers []Offer) ([]item, []int) {
	var items []item
	var of []int
	for _, i := range s.offers {
		o := offers[i]
		n := s.offerFits[i].regions
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
	counts  []int // VMs to launch, by item
}

// shared returns the number of regions that the servers hold.
func (f filling) shared() int {
	n := 0
	for _, t := range f.servers {
		n += t.n
	}
	return n
}

// cheapest finds the cheapest way to divide the regions between servers and VMs to be
// launched.
func cheapest(items []item, bins []bin, regions int) filling {
	return divide(newSharing(bins, regions), newCover(items, regions), regions, len(items))
}

func divide(shared *sharing, launched *cover, regions, items int) filling {
	f, on := filling{cost: never}, 0
	for n := shared.most(); n >= 0; n-- { // of equally cheap ways, most regions on servers
		if c := shared.least[n].plus(launched.at(regions - n)); c < f.cost {
			f.cost, on = c, n
		}
	}
	if f.cost != never {
		f.servers, f.counts = shared.take(on), launched.counts(regions-on, items)
	}
	return f
}

// parts divides the demand among the VMs of the best plan. Each VM is filled before the
// next, so the last one has the spare memory, into which the cache can grow (R72).
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
