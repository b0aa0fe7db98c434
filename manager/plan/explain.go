package plan

import (
	"fmt"
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

func explain(offers []Offer, servers []Server, others []rest, sites []*site, won *site) Explanation {
	var e Explanation
	home := make(map[candidate]*site)
	used := make(map[candidate]int) // VMs of an offer, or regions of a server
	for _, s := range sites {
		e.Sites = append(e.Sites, s.verdict(won))
		for c := range s.fits {
			home[c] = s
		}
	}
	if won != nil {
		for _, t := range won.best.servers {
			used[candidate{t.server, -1}] = t.n
		}
		for _, l := range won.best.launched {
			used[candidate{-1, l.offer}] = l.vms
		}
	}
	e.Verdicts = aboutServers(servers, home, used, won)
	for _, r := range others {
		e.Verdicts = append(e.Verdicts, r.verdict())
	}
	for i, o := range offers {
		c := candidate{-1, i}
		v := Verdict{Name: o.Name(), Distance: o.Distance, VMs: used[c], Price: o.Price}
		switch s := home[c]; {
		case s == nil:
			v.Reason = noConfig
		case v.VMs > 0:
			v.Reason = fmt.Sprintf("chosen, %s%s", count(v.VMs, "VM"), s.fits[c].holds(s))
		case s.fits[c].regions == 0:
			v.Reason = s.fits[c].nothing()
		case s != won && won != nil:
			v.Reason = "another distance is chosen"
		default:
			v.Reason = s.alone(o, s.fits[c], won)
		}
		e.Verdicts = append(e.Verdicts, v)
	}
	return e
}

// otherTransport is the reason of a server with another transport than the demand.
const otherTransport = "it lends over %s, not %s"

const noConfig = "no configuration for this distance: there is no model of it, or nothing in it meets the SLO"

// nothing explains why a VM holds no region.
func (f fit) nothing() string { return "holds no region: " + f.why }

// holds explains why a VM does not hold the whole cache.
func (f fit) holds(s *site) string {
	if f.regions >= s.Regions {
		return ""
	}
	return fmt.Sprintf("; one holds %d of %d regions: %s", f.regions, s.Regions, f.why)
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

// alone explains why a VM type that holds at least one region was not taken, by the price
// of a plan of that type alone.
func (s *site) alone(o Offer, f fit, won *site) string {
	n := (s.Regions + f.regions - 1) / f.regions
	price := o.Price * Price(n)
	holds := f.holds(s)
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

// aboutServers returns one verdict for each server that is used, and one for each reason
// why others are not.
func aboutServers(servers []Server, home map[candidate]*site, used map[candidate]int, won *site) []Verdict {
	var all []Verdict
	var others []int            // servers beside all[i]'s that share its reason
	at := make(map[Verdict]int) // keyed by the verdict without its name
	for i, srv := range servers {
		c := candidate{i, -1}
		v := Verdict{Name: "server " + srv.ID, Distance: srv.Distance, Price: srv.Price}
		s := home[c]
		if n := used[c]; n > 0 {
			v.VMs, v.Price = 1, srv.Share(n, s.RegionSize)
			v.Reason = fmt.Sprintf("chosen, %s of %d", count(n, "region"), s.Regions)
			all, others = append(all, v), append(others, 0)
			continue
		}
		switch {
		case s == nil:
			v.Reason = noConfig
		case s.fits[c].regions == 0:
			v.Reason = s.fits[c].nothing()
		case won == nil:
			v.Reason = "too little" + s.fits[c].holds(s)
		case s != won:
			v.Reason = "another distance is chosen"
		case srv.Fresh:
			v.Reason = "it has just registered, and older servers have room"
		case srv.Share(s.Regions, s.RegionSize) > won.best.cost.price():
			v.Reason = "dearer"
		default:
			v.Reason = "not needed"
		}
		key := v
		key.Name = ""
		if i, ok := at[key]; ok {
			others[i]++
			continue
		}
		at[key] = len(all)
		all, others = append(all, v), append(others, 0)
	}
	for i, n := range others {
		if n > 0 {
			all[i].Name += fmt.Sprintf(" and %d more", n)
		}
	}
	return all
}

// verdict is about servers of a pool that are no candidates.
func (r rest) verdict() Verdict {
	v := Verdict{Name: count(r.count, "more server"), Distance: r.distance, Price: r.low, Reason: r.why}
	if r.low != r.high {
		v.Reason += fmt.Sprintf(", from %v to %v", r.low, r.high)
	}
	return v
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
