package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// WarmPool is a number of VMs of one type that run without a cache, so that a migration need
// not wait for the launch of its target (R31).
type WarmPool struct {
	Type        string
	Spot        bool
	CloudRegion string // empty: the allocator's
	Count       int
}

// checkWarm reports pools of types that are not on the allocator's menu.
func (m *Manager) checkWarm() error {
	if len(m.opts.Warm) == 0 {
		return nil
	}
	k := m.market()
	if k == nil {
		return nil // offers of other allocators may change
	}
	for _, p := range m.opts.Warm {
		if _, err := k.Kinds(menu.Kind{Type: p.Type, CloudRegion: p.CloudRegion, Spot: p.Spot}); err != nil {
			return fmt.Errorf("warm pool: %w", err)
		}
	}
	return nil
}

// warmRetry is the interval at which pools are checked.
const warmRetry = 5 * time.Second

// warmer is the loop that keeps the pools full.
func (m *Manager) warmer() {
	ticker := time.NewTicker(warmRetry)
	defer ticker.Stop()
	for {
		for _, p := range m.opts.Warm {
			if err := m.fillPool(m.ctx, p); err != nil && m.ctx.Err() == nil {
				m.opts.Logger.Warn("warm pool not filled", "type", p.Type, "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-m.taken:
		case <-m.ctx.Done():
			return
		}
	}
}

// fillPool launches the VMs that a pool lacks, one after the other.
func (m *Manager) fillPool(ctx context.Context, p WarmPool) error {
	m.filling.Lock()
	defer m.filling.Unlock()
	p.CloudRegion = cmp.Or(p.CloudRegion, m.cloudRegion())
	for n := m.state.warm(p); n < p.Count; n++ {
		s, err := m.supply(ctx, p.CloudRegion)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(s.offers, func(o plan.Offer) bool { return o.Type == p.Type && o.Spot == p.Spot && !o.Fitted })
		if i < 0 {
			return fmt.Errorf("type %q is not on the menu", p.Type)
		}
		if err := m.launchWarm(ctx, ordered(s.offers[i], p.CloudRegion)); err != nil {
			return err
		}
	}
	return nil
}

// launchWarm launches a VM without a cache.
func (m *Manager) launchWarm(ctx context.Context, order node.VM) (err error) {
	v, err := m.state.enterWarm(newVMID(), order)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.opts.LaunchTimeout, fmt.Errorf("no answer within %v", m.opts.LaunchTimeout))
	defer cancel()
	if err = m.opts.Allocator.Launch(ctx, m.state.spec(v, m.opts.Transport)); err == nil {
		err = m.state.await(ctx, v)
	}
	if err != nil {
		m.fail(v.id, v, "not launched")
	}
	return err
}

// enterWarm adds a VM to be launched for a pool.
func (c *state) enterWarm(id string, order node.VM) (_ *vm, err error) {
	c.mu.Lock()
	defer c.end(&err)
	return c.enter(&vm{id: id, launched: true, warm: true, VM: order}), nil
}

// warm counts the VMs of a pool, including starting ones.
func (c *state) warm(p WarmPool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, v := range c.vms {
		if v.warm && v.Type == p.Type && v.Spot == p.Spot && v.CloudRegion == p.CloudRegion && v.usable() == nil {
			n++
		}
	}
	return n
}

// idle lists the running VMs of warm pools that match an offer, oldest first. Called under
// mu.
func (c *state) idle(o plan.Offer, region, transport string) []*vm {
	var all []*vm
	for _, v := range c.vms {
		if v.idle(transport) && v.kind() == kindOf(o, region) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *vm) int { return cmp.Compare(a.order, b.order) })
	return all
}

// idle reports whether a VM runs for a warm pool. Called under mu.
func (v *vm) idle(transport string) bool {
	return v.warm && v.ControlURL != "" && v.usable() == nil && v.Transport == transport
}

// withWarm adds the numbers of VMs in warm pools to a supply's offers. Moves may use them; a
// new cache only counts on them for its later moves. Called under mu.
func (c *state) withWarm(s supply, transport string, moves bool) supply {
	s.offers = slices.Clone(s.offers)
	idle := make(map[menu.Kind]int)
	for _, v := range c.vms {
		if v.idle(transport) {
			idle[v.kind()]++
		}
	}
	for i := range s.offers {
		o := &s.offers[i]
		n := idle[kindOf(*o, s.region)]
		o.Warm = cmp.Or(n, o.Warm)
		if moves && n > 0 {
			o.Ready = n
			if o.Available >= 0 {
				o.Available += n
			}
		}
	}
	return s
}

// warmUp replaces VMs to launch by VMs of warm pools. Called under mu.
func (c *state) warmUp(parts []part, region, transport string) {
	for i, p := range parts {
		if p.vm != nil || p.offer.Fitted {
			continue
		}
		if idle := c.idle(p.offer, region, transport); len(idle) > 0 {
			parts[i].vm, parts[i].warm, idle[0].warm = idle[0], true, false
		}
	}
}

// coolDown returns VMs to their warm pools that were taken for grants which no client has,
// and returns the other grants.
func (c *state) coolDown(grants []*grant) (others []*grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range grants {
		if !s.warm || s.vm.grants > 1 || s.vm.usable() != nil {
			others = append(others, s)
			continue
		}
		s.vm.grants--
		s.vm.reserved -= s.bytes
		s.vm.threads -= s.cores
		s.vm.warm = true
	}
	return others
}
