package manager

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// supply asks the allocator what there is now in a cloud region, and names it where
// none is asked for: the same region has one name in the catalog.
func (m *Manager) supply(ctx context.Context, region string) (supply, error) {
	region = cmp.Or(region, m.cloudRegion())
	s := supply{region: region, policy: m.policy(), economy: m.opts.Economy, now: m.opts.now()}
	if m.opts.Allocator == nil {
		if region != "" {
			return s, refuseCapacity(&menu.RegionError{Asked: region}, connect.CodeInvalidArgument)
		}
		return s, nil
	}
	offers, err := m.opts.Allocator.Offers(ctx, region)
	if err != nil {
		return s, refuseCapacity(err, connect.CodeUnavailable)
	}
	s.offers = slices.Clone(offers)
	alive := m.catalog.alive(s.now)
	for i, o := range s.offers {
		if o.Spot && o.Lifetime == 0 {
			kind := menu.Kind{Type: o.Type, CloudRegion: region, Distance: o.Distance, Spot: true}
			s.offers[i].Lifetime = m.opts.Predictor.Lifetime(kind, alive[kind])
		}
		if most := m.opts.VMMemory; o.Fitted && most > 0 && (o.Memory == 0 || o.Memory > most) {
			s.offers[i].Memory = most
		}
	}
	return s, nil
}

// supplyOf is supply for a cache that there is.
func (m *Manager) supplyOf(ctx context.Context, cache string) (supply, error) {
	d, err := m.catalog.demand(cache)
	if err != nil {
		return supply{}, refuseCapacity(err, connect.CodeNotFound)
	}
	return m.supply(ctx, d.cloudRegion)
}

// policy is how VMs are chosen now.
func (m *Manager) policy() plan.Policy {
	return plan.Policy{
		MaxVMs: maxVMsPerCache, MigrationRate: m.rate.get(), Provision: m.opts.Provision, Margin: m.opts.NoticeMargin,
		MinLifetime: m.opts.MinLifetime, Room: m.room(),
	}
}

// room is what an allocator's VMs may still have together; nil: any number of bytes.
func (m *Manager) room() *uint64 {
	if a, ok := m.opts.Allocator.(interface{ room() uint64 }); ok {
		return new(a.room())
	}
	return nil
}

// spec is how a VM is to be launched that was ordered.
func (c *catalog) spec(v *vm, transport string) VMSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	return VMSpec{
		ID: v.id, Memory: v.Memory, Cores: v.Cores, Transport: transport,
		Kind: v.kind(),
	}
}

// decide keeps why something was decided, in the place of what was decided of the
// kind before. Called under mu.
func (ca *cache) decide(what string, d *managerv1.Decision) {
	if d == nil {
		return
	}
	d.What = what
	kept := slices.DeleteFunc(slices.Clone(ca.decisions), func(old *managerv1.Decision) bool { return old.GetWhat() == what })
	ca.decisions = append(kept, d)
}
