package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/units"
)

// Explanation says for each candidate why it was taken or not.
type Explanation struct {
	Sites    []SiteVerdict // by distance
	Verdicts []Verdict     // of servers, by age, and of VM types, by name
}

// SiteVerdict is about all VMs at one distance.
type SiteVerdict struct {
	Distance int
	Config   Config
	VMs      int   // of the site's best plan; 0: there is none
	Price    Price // of that plan
	Chosen   bool
	Reason   string
}

// Verdict is about one VM type, or about servers that share a reason.
type Verdict struct {
	Name     string
	Distance int
	VMs      int   // of this type in the plan
	Price    Price // of one VM, or of the servers' part
	Reason   string
}

// String formats the explanation, one line per verdict.
func (e Explanation) String() string {
	var b strings.Builder
	for _, s := range e.Sites {
		fmt.Fprintf(&b, "distance %s (%d, %d, %d, %d): %s\n", unknown(s.Distance), s.Config.C, s.Config.S, s.Config.B, s.Config.Q, s.Reason)
	}
	for _, v := range e.Verdicts {
		fmt.Fprintf(&b, "%s at distance %s, %v: %s\n", v.Name, unknown(v.Distance), v.Price, v.Reason)
	}
	return b.String()
}

func unknown(distance int) string {
	if distance == 0 {
		return "?"
	}
	return fmt.Sprint(distance)
}

// named bounds the chosen servers and the VM types that an explanation names.
const named = 8

func explain(d Demand, offers []Offer, servers []Server, others []rest, sites []*site, won *site) Explanation {
	var e Explanation
	for _, s := range sites {
		e.Sites = append(e.Sites, s.verdict(won))
	}
	e.Verdicts = append(aboutServers(d, servers, others, sites, won), aboutOffers(offers, sites, won)...)
	return e
}

func (s *site) verdict(won *site) SiteVerdict {
	v := SiteVerdict{Distance: s.distance, Config: s.config, Chosen: s == won}
	if s.best.cost == never {
		v.Reason = "too little for this cache"
		return v
	}
	v.Price, v.VMs = s.best.cost.price(), s.best.cost.vms()
	is := fmt.Sprintf("%s for %v", count(v.VMs, "VM"), v.Price)
	more := v.Price - won.best.cost.price()
	switch {
	case v.Chosen && s.far:
		v.Reason = "chosen, farther away than the cache's other VMs, as there is nothing nearer: " + is
	case v.Chosen:
		v.Reason = "chosen: " + is
	case s.far && !won.far:
		v.Reason = fmt.Sprintf("farther away than the cache's other VMs: %s", is)
	case more > 0:
		v.Reason = fmt.Sprintf("dearer by %v: %s", more, is)
	case v.VMs > won.best.cost.vms():
		v.Reason = "as cheap, with more VMs: " + is
	case s.best.vms() > won.best.vms():
		v.Reason = "as cheap, with more VMs to be launched: " + is
	default:
		v.Reason = "as cheap, and farther away: " + is
	}
	return v
}

// homes returns the site of each of n servers or offers; nil: it has none.
func homes(sites []*site, n int, members func(*site) []int) []*site {
	at := make([]*site, n)
	for _, s := range sites {
		for _, i := range members(s) {
			at[i] = s
		}
	}
	return at
}

// holds explains why a VM does not hold the whole cache.
func (s *site) holds(f fit, why string) string {
	if f.regions >= s.Regions {
		return ""
	}
	return fmt.Sprintf("; one holds %d of %d regions: %s", f.regions, s.Regions, why)
}

// group is a number of servers or VM types that share a reason.
type group struct {
	key
	first     int // index of the first one; -1: not known
	count     int
	low, high Price // of one
	vms       int   // in the plan
	regions   int   // in the plan
	price     Price // of these regions
	differ    bool  // in what limits them
}

// key is what the members of a group have in common.
type key struct {
	verdict   verdict
	distance  int
	limit     limit
	transport string // with otherTransport
	more      bool   // beside those that are named
}

// verdict is a class of reasons. Those up to tooLittle are about what the plan could have
// used.
type verdict uint8

const (
	chosen verdict = iota
	justRegistered
	notNeeded
	noBetter // no candidates of a pool
	dearer
	tooLittle
	elsewhere
	holdsNone
	noConfig
)

var verdictText = [...]string{
	chosen:         "chosen",
	justRegistered: "it has just registered, and older servers have room",
	notNeeded:      "not needed",
	noBetter:       "full, or no better than others",
	dearer:         "dearer",
	tooLittle:      "too little",
	elsewhere:      "another distance is chosen",
	holdsNone:      "holds no region",
	noConfig:       "no configuration for this distance: there is no model of it, or nothing in it meets the SLO",
}

// judge returns the verdict on a server or VM type of a site with that fit; atSite is the
// verdict on one that the plan could have used.
func (s *site) judge(f fit, won *site, atSite verdict) verdict {
	switch {
	case f.regions == 0:
		return holdsNone
	case won == nil:
		return tooLittle
	case s != won:
		return elsewhere
	}
	return atSite
}

// groups are in order of their first members.
type groups []*group

// of returns the group of a key, and adds it with its first member if there is none.
func (g *groups) of(k key, first int) *group {
	for _, have := range *g {
		if have.key == k {
			return have
		}
	}
	return g.begin(k, first)
}

func (g *groups) begin(k key, first int) *group {
	*g = append(*g, &group{key: k, first: first})
	return (*g)[len(*g)-1]
}

func (g *group) add(members int, low, high Price) {
	if g.count == 0 {
		g.low, g.high = low, high
	}
	g.count += members
	g.low, g.high = min(g.low, low), max(g.high, high)
}

// name is that of the group's first member, and the number of the others.
func (g *group) name(first, what string) string {
	switch {
	case g.first < 0 || g.more:
		return count(g.count, "more "+what)
	case g.count > 1:
		return fmt.Sprintf("%s and %d more", first, g.count-1)
	}
	return first
}

// prices is the range of the prices of one VM, if they differ.
func (g *group) prices() string {
	if g.low == g.high {
		return ""
	}
	return fmt.Sprintf(", from %v to %v", g.low, g.high)
}

// aboutServers returns one verdict for each of the first chosen servers, and one for each
// reason that others share.
func aboutServers(d Demand, servers []Server, others []rest, sites []*site, won *site) []Verdict {
	home := homes(sites, len(servers), func(s *site) []int { return s.servers })
	used := make([]int, len(servers)) // regions
	if won != nil {
		for _, t := range won.best.servers {
			used[t.server] = t.n
		}
	}
	var all groups
	uses := 0
	for i, srv := range servers {
		k := key{distance: srv.Distance}
		var g *group
		switch n := used[i]; {
		case n > 0:
			if uses++; uses <= named {
				g = all.begin(k, i)
			} else {
				k.more = true
				g = all.of(k, i)
			}
			g.vms, g.regions, g.price = g.vms+1, g.regions+n, g.price+srv.Share(n, d.RegionSize)
		default:
			home[i].aboutServer(&k, i, srv, won)
			g = all.of(k, i)
			first := servers[g.first]
			g.differ = g.differ || k.limit == limitedMemory && first.Free != srv.Free || k.limit == limitedCores && first.Cores != srv.Cores
		}
		g.add(1, srv.Price, srv.Price)
	}
	for _, r := range others {
		k := key{verdict: r.verdict, distance: r.distance}
		if r.verdict == holdsNone {
			k.limit, k.transport = otherTransport, r.transport
		}
		all.of(k, -1).add(r.count, r.low, r.high)
	}
	var verdicts []Verdict
	for _, g := range all {
		v := Verdict{Distance: g.distance, VMs: g.vms, Price: g.low}
		var first Server
		var at *site
		if g.first >= 0 {
			first, at = servers[g.first], home[g.first]
		}
		v.Name = g.name("server "+first.ID, "server")
		if g.verdict == chosen {
			v.Price = g.price
		}
		v.Reason = verdictText[g.verdict] + g.aboutServers(d, first, at)
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// aboutServer completes the key of a server that is not in the plan.
func (s *site) aboutServer(k *key, i int, srv Server, won *site) {
	if s == nil {
		k.verdict = noConfig
		return
	}
	f := s.serverFits[i]
	switch k.verdict = s.judge(f, won, notNeeded); {
	case k.verdict == holdsNone || k.verdict == tooLittle:
		if k.limit = f.limit; f.limit == otherTransport {
			k.transport = srv.Transport
		}
	case k.verdict == notNeeded && srv.Fresh:
		k.verdict = justRegistered
	case k.verdict == notNeeded && srv.Share(s.Regions, s.RegionSize) > won.best.cost.price():
		k.verdict = dearer
	}
}

// aboutServers returns the details of a reason that servers share; the first one is at a
// site.
func (g *group) aboutServers(d Demand, first Server, at *site) string {
	switch {
	case g.verdict == chosen:
		return fmt.Sprintf(", %s of %d", count(g.regions, "region"), d.Regions)
	case g.limit == otherTransport:
		return ": " + otherTransportText(g.transport, d.Transport) + g.prices()
	case g.limit == noLimit:
		return g.prices()
	case g.differ && g.verdict == tooLittle:
		return g.prices()
	case g.differ && g.limit == limitedMemory:
		return ": too little free memory" + g.prices()
	case g.differ:
		return ": too few free cores" + g.prices()
	}
	f := at.serverFits[g.first]
	why := at.whyServer(f, first)
	if g.verdict == tooLittle {
		return at.holds(f, why) + g.prices()
	}
	return ": " + why + g.prices()
}

// aboutOffers returns one verdict for each of few VM types, in the order of offers. Of many
// it names those chosen, then those whose plans would be the cheapest; the others get one
// verdict for each reason that they share.
func aboutOffers(offers []Offer, sites []*site, won *site) []Verdict {
	home := homes(sites, len(offers), func(s *site) []int { return s.offers })
	vms := make([]int, len(offers))
	if won != nil {
		for _, l := range won.best.launched {
			vms[l.offer] += l.vms
		}
	}
	verdictOn := func(i int) verdict {
		switch s := home[i]; {
		case s == nil:
			return noConfig
		case vms[i] > 0:
			return chosen
		default:
			return s.judge(s.offerFits[i], won, notNeeded)
		}
	}
	relevance := make([]int, len(offers))
	for i := range offers {
		relevance[i] = i
	}
	slices.SortStableFunc(relevance, func(a, b int) int {
		of := verdictOn(a)
		if order := cmp.Compare(of, verdictOn(b)); order != 0 || of == holdsNone || of == noConfig {
			return order
		}
		return cmp.Compare(home[a].price(offers[a], a), home[b].price(offers[b], b))
	})
	name := make([]bool, len(offers))
	for _, i := range relevance[:min(named, len(offers))] {
		name[i] = len(offers) <= named || verdictOn(i) <= tooLittle
	}
	var verdicts []Verdict
	var all groups
	for i, o := range offers {
		on := verdictOn(i)
		if !name[i] {
			g := all.of(key{verdict: on, distance: o.Distance, more: true}, i)
			g.add(1, o.Price, o.Price)
			g.vms += vms[i]
			continue
		}
		v := Verdict{Name: o.Name(), Distance: o.Distance, VMs: vms[i], Price: o.Price, Reason: verdictText[on]}
		switch s := home[i]; on {
		case chosen:
			v.Reason = fmt.Sprintf("chosen, %s%s", count(vms[i], "VM"), s.holds(s.offerFits[i], s.whyOffer(s.offerFits[i], o)))
		case holdsNone:
			v.Reason += ": " + s.whyOffer(s.offerFits[i], o)
		case notNeeded, tooLittle:
			v.Reason = s.alone(o, s.offerFits[i], won)
		}
		verdicts = append(verdicts, v)
	}
	for _, g := range all {
		v := Verdict{Name: g.name("", "VM type"), Distance: g.distance, VMs: g.vms, Price: g.low, Reason: verdictText[g.verdict]}
		if g.vms > 0 {
			v.Reason += ", " + count(g.vms, "VM")
		}
		v.Reason += g.prices()
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// price returns the price of a plan of one VM type alone.
func (s *site) price(o Offer, i int) Price {
	regions := s.offerFits[i].regions
	return o.Price * Price((s.Regions+regions-1)/regions)
}

// alone explains why a VM type that holds at least one region was not taken, by the price
// of a plan of that type alone.
func (s *site) alone(o Offer, f fit, won *site) string {
	n := (s.Regions + f.regions - 1) / f.regions
	price := o.Price * Price(n)
	holds := s.holds(f, s.whyOffer(f, o))
	switch {
	case n > s.MaxVMs:
		return fmt.Sprintf("%s would be needed, a cache has at most %d%s", count(n, "VM"), s.MaxVMs, holds)
	case s.Room != nil && !o.Fitted && n > o.Ready && uint64(n-o.Ready) > *s.Room/o.Memory:
		return fmt.Sprintf("%s would be needed, %v are left for all VMs%s", count(n, "VM"), units.Size(*s.Room), holds)
	case o.Available >= 0 && n > o.Available:
		return fmt.Sprintf("%s would be needed, %d available, and with others it is no cheaper%s", count(n, "VM"), o.Available, holds)
	case won == nil:
		return "too little" + holds
	case price > won.best.cost.price():
		return fmt.Sprintf("dearer by %v: %s for %v%s", price-won.best.cost.price(), count(n, "VM"), price, holds)
	case n > won.best.cost.vms():
		return fmt.Sprintf("as cheap, with %s%s", count(n, "VM"), holds)
	}
	return "as cheap, and comes later" + holds
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
