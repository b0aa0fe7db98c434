package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Choose finds the cheapest plan for a demand. If nothing serves the demand, the error is a
// [*NoneError] with the reasons; any other error reports an invalid argument.
func Choose(d Demand, offers []Offer, servers []Server, p Policy) (*Plan, error) {
	return choose(d, offers, servers, nil, p)
}

// choose is Choose with servers of a pool that are no candidates.
func choose(d Demand, offers []Offer, servers []Server, others []rest, p Policy) (*Plan, error) {
	if err := check(&d, offers, servers, &p); err != nil {
		return nil, err
	}
	sites := sitesOf(d, offers, servers, p)
	var won *site
	for _, s := range sites {
		s.solve(offers, servers)
		if s.best.cost == never {
			continue
		}
		// Sites are sorted by distance: of equally cheap ones the nearest wins, unless a
		// farther one has fewer VMs to launch.
		if won == nil || won.far == s.far && s.cheaper(won) {
			won = s
		}
	}
	explanation := explain(d, offers, servers, others, sites, won)
	if won == nil {
		return nil, none(d, offers, servers, others, sites, explanation)
	}
	plan := &Plan{
		Distance: won.distance, Config: won.config, Parts: won.parts(offers, servers),
		Price: won.best.cost.price(), Explanation: explanation,
	}
	return plan, nil
}

func (s *site) cheaper(than *site) bool {
	if s.best.cost != than.best.cost {
		return s.best.cost < than.best.cost
	}
	return s.best.vms() < than.best.vms()
}

// maxRegions bounds a demand, so that a cost can count its VMs.
const maxRegions = 1 << 16

// check sets defaults and validates the arguments.
func check(d *Demand, offers []Offer, servers []Server, p *Policy) error {
	d.Per, p.MaxVMs = cmp.Or(d.Per, d.Regions), cmp.Or(p.MaxVMs, defaultMaxVMs)
	if d.RegionSize == 0 || d.Regions < 1 || d.Regions > maxRegions || d.Per < 1 || d.Per > maxRegions {
		return fmt.Errorf("plan: %d regions of %d bytes, threads for %d: want 1 to %d regions of 1 byte or more", d.Regions, d.RegionSize, d.Per, maxRegions)
	}
	if len(d.Configs) == 0 {
		return fmt.Errorf("plan: no configuration")
	}
	for distance, c := range d.Configs {
		if distance < 0 || c.C < 1 || c.C > maxRegions || c.S < 0 || c.S > c.C {
			return fmt.Errorf("plan: configuration (%d, %d, %d, %d) for distance %d: want 1 client thread or more, and no more server threads", c.C, c.S, c.B, c.Q, distance)
		}
	}
	if p.MaxVMs < 1 || p.MaxVMs > maxRegions {
		return fmt.Errorf("plan: at most %d VMs: want 1 to %d", p.MaxVMs, maxRegions)
	}
	for _, o := range offers {
		if o.Price < 0 || o.Price > MaxPrice || o.Cores < 0 || o.Cores > maxRegions || o.Distance < 0 {
			return fmt.Errorf("plan: VM type %s: price %v, %d cores, distance %d", o.Type, o.Price, o.Cores, o.Distance)
		}
	}
	for _, s := range servers {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

func (s Server) check() error {
	if s.Price < 0 || s.Price > MaxPrice || s.Cores < 0 || s.Cores > maxRegions || s.Distance < 0 || s.Free > s.Memory {
		return fmt.Errorf("plan: server %s: price %v, %d cores, distance %d, %d of %d bytes free", s.ID, s.Price, s.Cores, s.Distance, s.Free, s.Memory)
	}
	return nil
}

// sitesOf groups servers and offers by distance and computes how much of the demand each
// can hold. It skips those without a usable configuration. Sites are sorted by distance.
func sitesOf(d Demand, offers []Offer, servers []Server, p Policy) []*site {
	at := make(map[int]*site)
	serverFits, offerFits := make([]fit, len(servers)), make([]fit, len(offers))
	place := func(distance int) *site {
		distance, config, ok := d.where(distance)
		if !ok {
			return nil
		}
		s := at[distance]
		if s == nil {
			s = &site{
				need: need{Demand: d, Policy: p, config: config}, distance: distance,
				far: d.Distance > 0 && distance > d.Distance, serverFits: serverFits, offerFits: offerFits,
			}
			at[distance] = s
		}
		return s
	}
	for i, srv := range servers {
		if s := place(srv.Distance); s != nil {
			s.servers = append(s.servers, i)
			serverFits[i] = s.server(srv)
		}
	}
	for i, o := range offers {
		if s := place(o.Distance); s != nil {
			s.offers = append(s.offers, i)
		}
	}
	sites := slices.SortedFunc(maps.Values(at), func(a, b *site) int { return cmp.Compare(a.distance, b.distance) })
	for _, s := range sites {
		s.warm = s.warmRoom(offers, s.offers)
		s.room = s.roomFor(offers, s.offers)
		slices.SortStableFunc(s.offers, func(a, b int) int { return cmp.Compare(offers[a].Name(), offers[b].Name()) })
		for _, i := range s.offers {
			offerFits[i] = s.offer(offers[i])
		}
	}
	return sites
}

// where returns the site of a VM at a distance, and its configuration. A VM at an unknown
// distance belongs to the nearest site; one nearer than the cache's VMs belongs to theirs.
func (d Demand) where(distance int) (int, Config, bool) {
	if distance == 0 {
		distance = d.nearest()
	}
	distance = max(distance, d.Distance)
	c, ok := d.Configs[distance]
	if !ok {
		c, ok = d.Configs[0]
	}
	return distance, c, ok
}

// nearest returns the least distance that has a configuration; 0 if one configuration
// applies to all distances.
func (d Demand) nearest() int {
	if _, ok := d.Configs[0]; ok {
		return 0
	}
	return slices.Min(slices.Collect(maps.Keys(d.Configs)))
}

// none returns the error, with the largest cache that would have been possible.
func none(d Demand, offers []Offer, servers []Server, others []rest, sites []*site, e Explanation) error {
	err := &NoneError{Asked: uint64(d.Regions) * d.RegionSize, Offers: len(offers), Explanation: e}
	for _, s := range servers {
		if s.Transport == d.Transport {
			err.Servers++
		}
	}
	for _, r := range others {
		if r.transport == d.Transport {
			err.Servers += r.count
		}
	}
	err.Available = largest(d, offers, servers, sites)
	return err
}

// Largest returns the largest number of bytes that a demand could ask for, with no more
// regions than d has and everything else equal. An error reports an invalid argument.
func Largest(d Demand, offers []Offer, servers []Server, p Policy) (uint64, error) {
	if err := check(&d, offers, servers, &p); err != nil {
		return 0, err
	}
	return largest(d, offers, servers, sitesOf(d, offers, servers, p)), nil
}

func largest(d Demand, offers []Offer, servers []Server, sites []*site) (most uint64) {
	for _, s := range sites {
		most = max(most, uint64(s.largest(offers, servers))*d.RegionSize)
	}
	return most
}

// largest returns the number of regions that the site could hold with the allowed number of
// VMs. If a cache's threads serve all of it, a smaller cache needs more cores per region,
// so its VMs hold no more regions than before. The search therefore starts at the demand
// and goes down to what fits, until that equals what is asked for.
func (s *site) largest(offers []Offer, servers []Server) int {
	n, whole := s.need, s.Per == s.Regions
	for n.Regions > 0 {
		held := s.holding(n, offers, servers)
		if held >= n.Regions {
			break
		}
		n.Regions = held
		if whole {
			n.Per = held
		}
		n.warm = n.warmRoom(offers, s.offers)
	}
	return n.Regions
}

// holding returns the number of regions of a need that the site's VMs hold at most, with
// the allowed number of VMs.
func (s *site) holding(n need, offers []Offer, servers []Server) int {
	var shared []int
	if s.shared != nil {
		shared = s.shared(n)
	}
	for _, i := range s.servers {
		if srv := servers[i]; srv.Transport == n.Transport {
			shared = append(shared, min(n.byMemory(srv.Free), n.byCores(srv.Cores)))
		}
	}
	var items []item
	for _, i := range s.offers {
		if regions := n.offer(offers[i]).regions; regions > 0 {
			items = append(items, s.item(offers[i], regions))
		}
	}
	return s.room.most(items, shared, s.MaxVMs)
}
