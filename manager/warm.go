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
	m.opts.Warm = slices.Clone(m.opts.Warm)
	for i, p := range m.opts.Warm {
		m.opts.Warm[i].CloudRegion = cmp.Or(p.CloudRegion, k.CloudRegion())
		if _, err := k.Kinds(menu.Kind{Type: p.Type, CloudRegion: p.CloudRegion, Spot: p.Spot}); err != nil {
			return fmt.Errorf("warm pool: %w", err)
		}
	}
	return nil
}

// warmRetry is the interval at which pools are checked.
const warmRetry = 5 * time.Second

// warmer is the loop that keeps the pools at their counts. A pool may have too many VMs, or be gone,
// because the manager was started with other options, or because it heard nothing of its VMs for a while
// and ordered more.
func (l *leader) warmer() {
	ticker := time.NewTicker(warmRetry)
	defer ticker.Stop()
	for {
		if err := l.state.trimWarm(l.opts.Warm); err != nil && l.ctx.Err() == nil {
			l.opts.Logger.Warn("warm pools not trimmed", "err", err)
		}
		for _, p := range l.opts.Warm {
			if err := l.fillPool(l.ctx, p); err != nil && l.ctx.Err() == nil {
				l.opts.Logger.Warn("warm pool not filled", "type", p.Type, "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-l.taken:
		case <-l.ctx.Done():
			return
		}
	}
}

// fillPool orders the VMs that a pool lacks.
func (l *leader) fillPool(ctx context.Context, p WarmPool) error {
	if l.state.warm(p) >= p.Count {
		return nil
	}
	s, err := l.supply(ctx, from{region: p.CloudRegion})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.offers, func(o plan.Offer) bool { return o.Type == p.Type && o.Spot == p.Spot && !o.Fitted })
	if i < 0 {
		return fmt.Errorf("type %q is not on the menu", p.Type)
	}
	if s.offers[i].Available == 0 {
		return nil // it is tried again
	}
	return l.state.enterWarm(p, ordered(s.offers[i], p.CloudRegion), l.opts.Transport)
}

// setWarm notes whether a VM is of a warm pool. Called under mu.
func (c *state) setWarm(v *vm, warm bool) {
	v.warm = warm
	delete(c.warms, v)
	if warm {
		c.warms[v] = struct{}{}
	}
}

// enterWarm adds the VMs that a pool lacks.
func (c *state) enterWarm(p WarmPool, order node.VM, transport string) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	for n := c.countWarm(p); n < p.Count; n++ {
		c.enter(&vm{id: newVMID(), launched: true, warm: true, transport: transport, entered: time.Now(), VM: order})
	}
	return nil
}

// trimWarm takes the VMs that no pool needs out of the pools, so that they are terminated. The oldest stay
// of those that have called this leader: others may have died.
func (c *state) trimWarm(pools []WarmPool) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	var running []*vm
	for v := range c.warms {
		if v.ControlURL != "" && v.usable() == nil && (v.called || v.deadline.IsZero()) {
			running = append(running, v)
		}
	}
	slices.SortFunc(running, func(a, b *vm) int { return cmp.Compare(a.order, b.order) })
	kept := make(map[menu.Kind]int)
	for _, v := range running {
		kind := menu.Kind{Type: v.Type, CloudRegion: v.CloudRegion, Spot: v.Spot}
		if slices.ContainsFunc(pools, func(p WarmPool) bool { return p.of(v) && kept[kind] < p.Count }) {
			kept[kind]++
		} else {
			c.setWarm(v, false)
			c.touch(v)
			c.queue(v.key())
		}
	}
	return nil
}

// warm counts the VMs of a pool, including starting ones.
func (c *state) warm(p WarmPool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.countWarm(p)
}

// countWarm is called under mu.
func (c *state) countWarm(p WarmPool) int {
	n := 0
	for v := range c.warms {
		if p.of(v) && v.usable() == nil {
			n++
		}
	}
	return n
}

// idle lists the running VMs of warm pools that match an offer, oldest first. Called under
// mu.
func (c *state) idle(o plan.Offer, region, transport string) []*vm {
	var all []*vm
	for v := range c.warms {
		if v.idle(transport) && v.kind() == kindOf(o, region) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *vm) int { return cmp.Compare(a.order, b.order) })
	return all
}

// idle reports whether a VM runs for a warm pool, and this leader's allocator has it: until then
// a former leader may end it. Called under mu.
func (v *vm) idle(transport string) bool {
	return v.warm && v.launching && v.ControlURL != "" && v.usable() == nil && v.Transport == transport
}

// withWarm adds the numbers of VMs in warm pools to a supply's offers. Moves may use them; a
// new cache only counts on them for its later moves. Called under mu.
func (c *state) withWarm(s supply, transport string, moves bool) supply {
	if len(s.offers) == 0 {
		return s
	}
	s.offers = slices.Clone(s.offers)
	idle := make(map[menu.Kind]int)
	for v := range c.warms {
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
			parts[i].vm = idle[0]
			c.setWarm(idle[0], false)
			c.touch(idle[0])
		}
	}
}
