package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// A request for several VMs holds those that are up while it waits for the rest. Two requests that
// both hold and wait for VMs of one kind may never get all of theirs. After Options.GiveWay the
// younger one gives way: it ends, its VMs are terminated, and the kind counts as sold out for
// soldOutFor, so that the older one gets what is free.

// soldOutFor is how long a kind counts as sold out for which a request has given way.
const soldOutFor = time.Minute

// shopKind is a kind at any distance, as VMs of one kind at several distances share the room.
func shopKind(k menu.Kind) menu.Kind {
	k.Distance = 0
	return k
}

// giveWay ends the requests that give way, and returns their errors by cache.
func (c *state) giveWay(now time.Time, after time.Duration) (ended map[string]error, err error) {
	c.mu.Lock()
	defer c.end(&err)
	maps.DeleteFunc(c.soldOut, func(_ menu.Kind, until time.Time) bool { return now.After(until) })
	var asking []*cache
	for _, ca := range c.caches {
		if ca.request != nil {
			asking = append(asking, ca)
		}
	}
	slices.SortFunc(asking, func(a, b *cache) int { return cmp.Compare(a.request.number, b.request.number) })
	ended = make(map[string]error)
	wanted := make(map[menu.Kind]bool) // by older requests
	for _, ca := range asking {
		kinds := ca.request.waitsFor(now, after)
		if len(kinds) == 0 {
			continue
		}
		if i := slices.IndexFunc(ca.request.grants, func(g *grant) bool { return g.launch && g.vm.ControlURL != "" && wanted[shopKind(g.vm.kind())] }); i >= 0 {
			held := shopKind(ca.request.grants[i].vm.kind())
			c.soldOut[held] = now.Add(soldOutFor)
			ended[ca.id] = fmt.Errorf("VM type %.40q is %w: an older request waits for it", held.Type, menu.ErrSoldOut)
			c.giveUp(ca, ended[ca.id])
			continue
		}
		for _, k := range kinds {
			wanted[k] = true
		}
	}
	return ended, nil
}

// waitsFor lists the kinds of the VMs for which a request has waited for at least that long, as the
// allocator has no room for them. Called under mu.
func (r *request) waitsFor(now time.Time, least time.Duration) (kinds []menu.Kind) {
	for _, g := range r.grants {
		if g.vm.waits != "" && g.vm.ControlURL == "" && now.Sub(g.vm.waitsSince) >= least {
			kinds = append(kinds, shopKind(g.vm.kind()))
		}
	}
	return kinds
}

// markSoldOut makes those of the offers unavailable that count as sold out, or whose launches fail.
func (c *state) markSoldOut(offers []plan.Offer, region string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range offers {
		kind := kindOf(o, region)
		if until, ok := c.soldOut[shopKind(kind)]; ok && !o.Fitted && !now.After(until) {
			offers[i].Available, offers[i].Note = 0, "caches wait for it"
		}
		if why := c.backsOff(kind); why != "" {
			offers[i].Available, offers[i].Note = 0, why
		}
	}
}

// giveWay is the step of monitor that ends requests that give way.
func (l *leader) giveWay(now time.Time) {
	ended, _ := l.state.giveWay(now, l.opts.GiveWay) // the leader ends if the catalog does
	for id, err := range ended {
		l.opts.Logger.Warn("request gives way to an older one", "cache", id, "err", err)
	}
}
