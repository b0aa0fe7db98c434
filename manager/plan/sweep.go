package plan

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// sweep searches the members at one site in order of price, and finds those that the best
// plan may use. A member is not needed if others, which cost no more per region and hold as
// much each, hold the whole demand or are as many as a cache may have VMs: a plan with that
// member can use one of them instead. So a plan of those found costs as little as one of
// all members, with as few VMs, and is preferred as much.
type sweep struct {
	need
	distance   int
	roots      []*member // of the classes at this site
	avoid      map[string]bool
	avoided    int   // members to avoid
	freshSince int64 // members that started later are fresh

	heads    []head
	found    []*member
	unsure   int       // of found, those that hold nothing surely
	held     int       // regions that found can hold surely
	deferred []*member // of the present price, which other planners are likely to choose
	most     most      // the largest so far by what they hold surely, which decide what is needed
	largest  most      // the largest so far
	last     *member   // the last one visited
	stopped  bool      // all members after last cost more, and none is needed
}

// head is the next member of a class.
type head struct {
	*member
	price Price // of a region
}

// all finds all members.
func (s *sweep) all() {
	for _, root := range s.roots {
		for m := root.first(size{}); m != nil; m = m.next(size{}) {
			if !s.avoid[m.ID] {
				s.found = append(s.found, m)
			}
		}
	}
}

// run searches until all that is needed is found, up to limit members that hold something surely and
// as many that do not.
func (s *sweep) run(limit int) {
	for _, root := range s.roots {
		s.push(root.first(s.wanted()))
	}
	for price := Price(-1); ; {
		h, ok := s.pop()
		if !ok || h.price != price {
			s.takeDeferred(limit)
			// The best plan with no more regions than MaxVMs has the cheapest servers.
			enough := s.Regions <= s.MaxVMs && s.held >= s.Regions
			if s.stopped = enough || s.most.least >= s.Regions; s.stopped || !ok {
				return
			}
			price = h.price
		}
		s.last = h.member
		switch {
		case s.avoid[h.ID]:
		case h.claims > 0:
			s.deferred = append(s.deferred, h.member)
		default:
			s.take(h.member, limit)
		}
		s.push(h.next(s.wanted()))
	}
}

// push adds the next member of a class; nil: there is none.
func (s *sweep) push(m *member) {
	if m != nil {
		s.heads = append(s.heads, head{m, m.region(s.RegionSize)})
	}
}

// pop removes the first of all classes' next members.
func (s *sweep) pop() (head, bool) {
	if len(s.heads) == 0 || s.most.least >= s.Regions {
		return head{}, false
	}
	first := 0
	for i, h := range s.heads {
		if o := s.heads[first]; cmp.Or(cmp.Compare(h.price, o.price), cmp.Compare(h.age, o.age)) < 0 {
			first = i
		}
	}
	h := s.heads[first]
	s.heads = slices.Delete(s.heads, first, first+1)
	return h, true
}

// wanted is what a member needs to hold more regions than the smallest of the largest.
func (s *sweep) wanted() size {
	regions := s.most.least + 1
	high, free := bits.Mul64(uint64(regions), s.RegionSize)
	if high > 0 {
		free = math.MaxUint64
	}
	return size{free: free, cores: s.cores(regions)}
}

// take adds a member, if it is needed.
func (s *sweep) take(m *member, limit int) {
	regions := min(s.byMemory(m.Free), s.byCores(m.Cores))
	if regions <= s.most.least {
		return
	}
	// A fresh member may get less, and does not make others superfluous with more.
	sure := regions
	if s.fresh(m) {
		sure = min(sure, s.cautious(m.Server))
	}
	switch {
	case sure == 0 && s.unsure < limit:
		s.found = append(s.found, m)
		s.unsure++
	case sure > 0 && len(s.found)-s.unsure < limit:
		s.found = append(s.found, m)
		s.held += sure
	}
	s.most.add(m, sure, s.Regions, s.MaxVMs)
	s.largest.add(m, regions, s.Regions, s.MaxVMs)
}

// takeDeferred adds the members of one price that other planners are likely to choose,
// after those that they are not.
func (s *sweep) takeDeferred(limit int) {
	slices.SortFunc(s.deferred, byPreference)
	for _, m := range s.deferred {
		s.take(m, limit)
	}
	s.deferred = s.deferred[:0]
}

func (s *sweep) fresh(m *member) bool { return m.started > s.freshSince }

// candidates returns the members found in order of preference, with the largest ones if the
// limit was reached before them.
func (s *sweep) candidates(limit int) []*member {
	all := s.found
	for _, l := range s.largest.all {
		if len(s.found) >= limit && !slices.Contains(s.found, l.member) {
			all = append(all, l.member)
		}
	}
	slices.SortFunc(all, byPreference)
	return all
}

// byPreference orders members of equal prices.
func byPreference(a, b *member) int {
	return cmp.Or(cmp.Compare(a.claims, b.claims), cmp.Compare(a.age, b.age))
}

// likely returns the members that a plan of servers alone uses.
func (s *sweep) likely(all []*member) []*member {
	var bins []bin
	for i, m := range all {
		bins = append(bins, bin{server: i, regions: min(s.byMemory(m.Free), s.byCores(m.Cores)), price: m.region(s.RegionSize)})
	}
	slices.SortStableFunc(bins, largestOfCheapest)
	var likely []*member
	for _, t := range (&sharing{bins: bins}).take(s.Regions) {
		likely = append(likely, all[t.server])
	}
	return likely
}

// total describes all members.
func (s *sweep) total() (all sum) {
	for _, root := range s.roots {
		all = all.and(root.sum)
	}
	return all
}

// rest describes the members that are no candidates.
func (s *sweep) rest(found int) []rest {
	var above sum
	all := s.total()
	for _, root := range s.roots {
		if s.stopped {
			above = above.and(root.above(s.last.Server))
		}
	}
	var groups []rest
	if above.count > 0 {
		groups = append(groups, rest{above, s.Transport, s.distance, dearer})
	}
	if all.count -= above.count + found + s.avoided; all.count > 0 {
		groups = append(groups, rest{all, s.Transport, s.distance, noBetter})
	}
	return groups
}

// most keeps the largest members: as few as hold the demand, and no more than MaxVMs.
type most struct {
	all   []large // a heap, the smallest first
	held  int     // regions of all
	least int     // regions of the smallest, once all hold the demand or are MaxVMs; 0 before
}

type large struct {
	*member
	regions int
}

// add adds a member, and drops those that are no longer needed.
func (m *most) add(member *member, size, regions, vms int) {
	if size <= m.least {
		return
	}
	m.all = append(m.all, large{member, size})
	m.held += size
	for i := len(m.all) - 1; i > 0 && m.all[i].regions < m.all[(i-1)/2].regions; i = (i - 1) / 2 {
		m.all[i], m.all[(i-1)/2] = m.all[(i-1)/2], m.all[i]
	}
	for len(m.all) > vms || m.held-m.all[0].regions >= regions {
		m.drop()
	}
	if len(m.all) == vms || m.held >= regions {
		m.least = m.all[0].regions
	}
}

// drop removes the smallest member.
func (m *most) drop() {
	m.held -= m.all[0].regions
	last := len(m.all) - 1
	m.all[0] = m.all[last]
	m.all = m.all[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && m.all[child+1].regions < m.all[child].regions {
			child++
		}
		if child >= last || m.all[i].regions <= m.all[child].regions {
			return
		}
		m.all[i], m.all[child] = m.all[child], m.all[i]
		i = child
	}
}

// sizes returns the regions that the largest members can hold for a need: of as few as hold
// the demand, and of no more than MaxVMs.
func (s *sweep) sizes(n need) []int {
	var largest most
	var visit func(m *member)
	visit = func(m *member) {
		if m == nil || min(n.byMemory(m.sum.free), n.byCores(m.sum.cores)) <= largest.least {
			return
		}
		if !s.avoid[m.ID] {
			largest.add(m, min(n.byMemory(m.Free), n.byCores(m.Cores)), n.Regions, n.MaxVMs)
		}
		visit(m.left)
		visit(m.right)
	}
	for _, root := range s.roots {
		visit(root)
	}
	var sizes []int
	for _, l := range largest.all {
		sizes = append(sizes, l.regions)
	}
	return sizes
}
