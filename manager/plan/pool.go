package plan

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// Pool is an index of the registered servers that caches can use. From it a planner takes
// the few [Candidates] of a demand, among which [Candidates.Choose] chooses as [Choose]
// does among all servers:
//
//	pool.Put(server, age, started) // whenever a server or what is free of it changes
//	pool.Remove(id)                // when it is no longer usable
//
//	lock; c, err := pool.Candidates(demand, policy, avoid, now); unlock
//	chosen, err := c.Choose(demand, offers, policy) // takes long: without the lock
//	lock; reserve the memory of c.Servers[part.Server] if it is still free, and Put it
//	pool.Done(c); unlock
//
// The price, the distance and the number of VMs are those that Choose finds among all
// servers, and so are the servers while no other planner holds candidates. The exceptions:
//   - Of servers whose prices of a region are equal only by rounding, those with the lower
//     price of a byte come first.
//   - If a demand has more regions than a cache may have VMs, another of equally good plans
//     may be chosen.
//   - Where Choose's tables for all servers would be too large for an exact answer, those
//     for the candidates may be small enough. The plan is then no dearer.
//   - At most 3*[Policy].MaxVMs servers of a site are candidates, and 2*MaxVMs fresh ones that
//     have less memory than two regions. If an exact answer needs more, the plan may have more
//     VMs than necessary or, for a demand of more than MaxVMs regions, be dearer. There is a
//     plan whenever there is one among all servers.
//
// A Pool is not safe for concurrent use: its user's mutex guards it. [Pool.Largest] takes that itself.
type Pool struct {
	// FreshFor is the time during which a server that has started counts as
	// [Server].Fresh, unless all servers in the pool do.
	FreshFor time.Duration

	members map[string]*member
	trees   trees
	seed    maphash.Seed
	small   int // of a site with no more servers than these, all are candidates
}

// smallSite is the default of Pool.small. Among so few servers a plan is quick, and its
// explanation names each of them.
const smallSite = 64

// NewPool returns an empty pool.
func NewPool(freshFor time.Duration) *Pool {
	return &Pool{FreshFor: freshFor, members: make(map[string]*member), trees: make(trees), seed: maphash.MakeSeed(), small: smallSite}
}

// Put adds the server of an ID, or replaces it. The age orders servers: a lower one is
// preferred. Fresh is ignored; started says when the server started. An error reports an
// invalid server, and changes nothing. While price, memory, transport, distance and age
// stay, Put allocates nothing; it takes O(log n).
func (p *Pool) Put(s Server, age uint64, started time.Time) error {
	if err := s.check(); err != nil {
		return err
	}
	s.Fresh = false
	m := p.members[s.ID]
	if m == nil {
		m = &member{priority: maphash.String(p.seed, s.ID)}
		p.members[s.ID] = m
	} else if m.class == classOf(s) && m.Price == s.Price && m.Memory == s.Memory && m.age == age {
		m.Server, m.started = s, started.UnixNano()
		m.refresh()
		return nil
	} else {
		p.trees.remove(m)
	}
	m.Server, m.age, m.started = s, age, started.UnixNano()
	p.trees.insert(m)
	return nil
}

// Remove removes the server of an ID, if there is one.
func (p *Pool) Remove(id string) {
	if m := p.members[id]; m != nil {
		delete(p.members, id)
		p.trees.remove(m)
	}
}

// Len returns the number of servers.
func (p *Pool) Len() int { return len(p.members) }

// Candidates are servers from which the best plan for a demand can be made. While they are
// held, candidates of others prefer servers of the same price that the demand is not likely
// to get.
type Candidates struct {
	// Servers are in order of preference. The user may change them, for example to use
	// some of their memory otherwise; a plan then need no longer be the best.
	Servers []Server

	rest   []rest
	likely []*member
}

// rest is a group of servers that are no candidates.
type rest struct {
	sum
	transport string
	distance  int
	verdict   verdict
}

// Candidates returns the servers for a demand, except those to avoid by ID. An error
// reports an invalid argument. The caller ends its claim by Done.
func (p *Pool) Candidates(d Demand, policy Policy, avoid map[string]bool, now time.Time) (*Candidates, error) {
	if err := check(&d, nil, nil, &policy); err != nil {
		return nil, err
	}
	c, limit := &Candidates{}, 2*policy.MaxVMs
	for _, s := range p.sweeps(d, policy, avoid, now) {
		if s.total().count <= p.small {
			s.all()
		} else {
			s.run(limit)
		}
		found := s.candidates(limit)
		c.likely = append(c.likely, s.likely(found)...)
		for _, m := range found {
			server := m.Server
			server.Fresh = s.fresh(m)
			c.Servers = append(c.Servers, server)
		}
		c.rest = append(c.rest, s.rest(len(found))...)
	}
	c.rest = append(c.rest, p.unusable(d)...)
	for _, m := range c.likely {
		m.claims++
	}
	return c, nil
}

// Done ends the claim of candidates, once; nil has none.
func (p *Pool) Done(c *Candidates) {
	if c == nil {
		return
	}
	for _, m := range c.likely {
		m.claims--
	}
	c.likely = nil
}

// Choose is [Choose] among the candidates, and explains all servers of the pool. The
// Available of a [*NoneError] may be too small for a demand of more regions than a cache
// may have VMs: [Pool.Largest] is exact.
func (c *Candidates) Choose(d Demand, offers []Offer, p Policy) (*Plan, error) {
	return choose(d, offers, c.Servers, c.rest, p)
}

// Largest is [Largest] among the servers of the pool except those to avoid by ID. It takes the
// pool's lock while it reads the pool, and not for what takes long.
func (p *Pool) Largest(lock sync.Locker, d Demand, offers []Offer, policy Policy, avoid map[string]bool, now time.Time) (uint64, error) {
	if err := check(&d, offers, nil, &policy); err != nil {
		return 0, err
	}
	sweeps := func() []*sweep {
		lock.Lock()
		defer lock.Unlock()
		return p.sweeps(d, policy, avoid, now)
	}
	sites := sitesOf(d, offers, nil, policy)
	most := uint64(0)
	for _, s := range sweeps() {
		if !slices.ContainsFunc(sites, func(o *site) bool { return o.distance == s.distance }) {
			sites = append(sites, &site{need: s.need, distance: s.distance, room: s.roomFor(nil, nil)})
		}
	}
	for _, s := range sites {
		s.shared = func(n need) []int {
			lock.Lock()
			defer lock.Unlock()
			for _, present := range p.sweeps(d, policy, avoid, now) {
				if present.distance == s.distance {
					return present.sizes(n)
				}
			}
			return nil
		}
		most = max(most, uint64(s.largest(offers, nil))*d.RegionSize)
	}
	return most, nil
}

// sweeps returns a search for each site at which the pool has servers, by distance.
func (p *Pool) sweeps(d Demand, policy Policy, avoid map[string]bool, now time.Time) []*sweep {
	freshSince := now.Add(-p.FreshFor).UnixNano()
	if all := p.total(); all.started > freshSince {
		freshSince = now.UnixNano() + 1 // all are new, so none is
	}
	var sweeps []*sweep
	for class, root := range p.trees {
		distance, config, ok := d.where(class.distance)
		if class.transport != d.Transport || !ok {
			continue
		}
		i, found := slices.BinarySearchFunc(sweeps, distance, func(s *sweep, distance int) int { return cmp.Compare(s.distance, distance) })
		if !found {
			sweeps = slices.Insert(sweeps, i, &sweep{
				need: need{Demand: d, Policy: policy, config: config}, distance: distance, avoid: avoid, freshSince: freshSince,
			})
		}
		sweeps[i].roots = append(sweeps[i].roots, root)
	}
	for id := range avoid {
		m := p.members[id]
		if m == nil {
			continue
		}
		distance, _, _ := d.where(m.Distance)
		for _, s := range sweeps {
			if s.distance == distance && m.Transport == d.Transport {
				s.avoided++
			}
		}
	}
	return sweeps
}

func (p *Pool) total() (all sum) {
	for _, root := range p.trees {
		all = all.and(root.sum)
	}
	return all
}

// unusable describes the servers that no site of the demand has.
func (p *Pool) unusable(d Demand) []rest {
	at := make(map[rest]sum)
	for class, root := range p.trees {
		_, _, ok := d.where(class.distance)
		switch {
		case !ok:
			key := rest{transport: class.transport, distance: class.distance, verdict: noConfig}
			at[key] = at[key].and(root.sum)
		case class.transport != d.Transport:
			key := rest{transport: class.transport, distance: class.distance, verdict: holdsNone}
			at[key] = at[key].and(root.sum)
		}
	}
	var all []rest
	for key, sum := range at {
		key.sum = sum
		all = append(all, key)
	}
	slices.SortFunc(all, func(a, b rest) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.transport, b.transport))
	})
	return all
}
