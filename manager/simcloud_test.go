package manager

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// simMenu returns the simulated cloud's menu. It has enough VMs.
func simMenu() menu.Menu {
	spot := func(price float64, notice, mean time.Duration) *menu.Spot {
		return &menu.Spot{
			Price: price, Lowest: price / 2, Highest: price * 3, Notice: menu.Duration(notice), MeanTimeToReclaim: menu.Duration(mean),
		}
	}
	sold := func(distance int, price float64, s *menu.Spot) menu.Sold {
		return menu.Sold{CloudRegion: "here", Distance: distance, Price: price, MeanTimeToFailure: menu.Duration(20 * time.Hour), Spot: s}
	}
	return menu.Menu{Version: menu.Version, Types: []menu.Type{
		{Name: "lean-8", Memory: 8 * simRegion, Cores: 1, Sold: []menu.Sold{sold(1, 0.10, spot(0.03, time.Minute, 2*time.Hour))}},
		{Name: "lean-16", Memory: 16 * simRegion, Cores: 2, Sold: []menu.Sold{sold(1, 0.18, spot(0.06, time.Minute, 2*time.Hour)), sold(3, 0.16, nil)}},
		{Name: "rich-16", Memory: 16 * simRegion, Cores: 8, Sold: []menu.Sold{sold(1, 0.30, spot(0.07, 2*time.Minute, 3*time.Hour))}},
		{Name: "large-64", Memory: 64 * simRegion, Cores: 8, Sold: []menu.Sold{sold(1, 0.70, spot(0.15, 2*time.Minute, time.Hour))}},
	}}
}

// simCloud is an allocator whose VMs exist by name only. It outlives managers.
type simCloud struct {
	t      *testing.T
	market *menu.Market

	mu      sync.Mutex
	host    allocator.Host
	running map[string]*simVM
}

type simVM struct {
	spec   allocator.VMSpec
	leaves time.Time // deadline of its reclaim; zero: it is not reclaimed
	end    *time.Timer
}

func (c *simCloud) Transport() string    { return "tcp" }
func (c *simCloud) Market() *menu.Market { return c.market }
func (c *simCloud) Close() error         { return nil } // its VMs run on
func (c *simCloud) Attach(h allocator.Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = h
}

func (c *simCloud) manager() allocator.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *simCloud) Offers(_ context.Context, region, _ string) ([]plan.Offer, error) {
	return c.market.Offers(region)
}

func (c *simCloud) Launch(_ context.Context, spec allocator.VMSpec) error {
	if err := c.market.Sell(spec.ID, spec.Kind); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[spec.ID] != nil {
		c.t.Errorf("VM %s is launched twice", spec.ID)
	}
	c.running[spec.ID] = &simVM{spec: spec}
	time.AfterFunc(simStartVM, func() {
		// A VM that was terminated meanwhile is refused.
		_ = c.manager().Register(testVM(spec.ID, spec.Memory, spec.Cores, "http://sim:1"))
	})
	return nil
}

func (c *simCloud) Terminate(_ context.Context, id, _ string) error {
	c.end(id)
	return nil
}

// end returns false if the VM has ended before.
func (c *simCloud) end(id string) bool {
	c.mu.Lock()
	v := c.running[id]
	delete(c.running, id)
	if v != nil && v.end != nil {
		v.end.Stop()
	}
	c.mu.Unlock()
	if v != nil {
		c.market.GiveBack(id)
	}
	return v != nil
}

func (c *simCloud) VMFailed(id string) {
	if c.end(id) {
		c.manager().Failed(id, "failed")
	}
}

func (c *simCloud) VMReclaimed(id string, notice time.Duration) {
	c.mu.Lock()
	v := c.running[id]
	if v == nil || v.end != nil {
		c.mu.Unlock()
		return
	}
	v.leaves = time.Now().Add(notice)
	v.end = time.AfterFunc(notice, func() { c.VMFailed(id) })
	c.mu.Unlock()
	c.manager().Reclaimed(id, v.leaves, "reclaimed")
}

func (c *simCloud) MarketChanged() {
	if h := c.manager(); h != nil {
		h.OffersChanged()
	}
}

var _ allocator.Restorer = (*simCloud)(nil)

// Restore implements [allocator.Restorer]. It repeats the notices of reclaimed VMs.
func (c *simCloud) Restore(_ context.Context, _ uint64, lent, idle []string) (running []string, err error) {
	wanted := slices.Concat(lent, idle)
	known := make(map[string]bool)
	for _, id := range wanted {
		known[id] = true
	}
	c.mu.Lock()
	host, all := c.host, make(map[string]time.Time)
	for id, v := range c.running {
		all[id] = v.leaves
	}
	c.mu.Unlock()
	for id, leaves := range all {
		if !known[id] {
			c.end(id)
			continue
		}
		running = append(running, id)
		if !leaves.IsZero() {
			host.Reclaimed(id, leaves, "reclaimed")
		}
	}
	return running, nil
}
