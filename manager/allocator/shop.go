package allocator

import (
	"context"
	"fmt"
	"time"

	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// Marketer is an [Allocator] whose VMs are sold by a simulated market.
type Marketer interface {
	Allocator
	// Market is nil where VMs are made to measure.
	Market() *menu.Market
}

// shop is where an allocator of simulated VMs has them from: a market, or, without
// one, anything of any size for nothing.
type shop struct {
	market *menu.Market // nil: none
	budget *budget      // of the memory that all VMs have together
}

// newShop opens a shop. m may be nil.
func newShop(m *menu.Menu, opts menu.Options, b *budget, events menu.Events) (shop, error) {
	s := shop{budget: b}
	var err error
	if m != nil {
		s.market, err = menu.NewMarket(*m, opts, events)
	}
	return s, err
}

// Market implements [Marketer].
func (s shop) Market() *menu.Market { return s.market }

// Offers implements [Allocator]: what the market has, as far as there is memory.
func (s shop) Offers(_ context.Context, region string) ([]plan.Offer, error) {
	if s.market == nil {
		if region != "" {
			return nil, &menu.RegionError{Asked: region}
		}
		return []plan.Offer{{Type: "made to measure", Fitted: true, Available: -1}}, nil
	}
	offers, err := s.market.Offers(region)
	free := s.budget.free()
	for i, o := range offers {
		if n := int(min(free/o.Memory, 1<<20)); o.Available < 0 || n < o.Available {
			offers[i].Available = n
		}
	}
	return offers, err
}

// Room is how much memory there is for further VMs.
func (s shop) Room() uint64 { return s.budget.free() }

// buy takes a VM and its memory; sold out is menu.ErrSoldOut.
func (s shop) buy(spec VMSpec) error {
	if err := s.budget.take(spec.Memory); err != nil {
		return err
	}
	if s.market == nil {
		return nil
	}
	if err := s.market.Sell(spec.ID, spec.Kind); err != nil {
		s.budget.give(spec.Memory)
		return fmt.Errorf("VM %s: %w", spec.ID, err)
	}
	return nil
}

// resume is buy for a VM that runs already. One that is not on the menu any more
// stays, and never fails by chance.
func (s shop) resume(id string, kind menu.Kind, memory uint64) {
	s.budget.hold(memory)
	if s.market != nil {
		_ = s.market.Resume(id, kind)
	}
}

// giveBack is called once for each VM that was bought.
func (s shop) giveBack(id string, memory uint64) {
	s.budget.give(memory)
	if s.market != nil {
		s.market.GiveBack(id)
	}
}

func (s shop) close() {
	if s.market != nil {
		s.market.Close()
	}
}

// marketEvents passes what happens on a market to an allocator's manager.
type marketEvents struct {
	host    func() Host
	kill    func(id string)
	reclaim func(id string, notice time.Duration) bool
}

func (e marketEvents) VMReclaimed(id string, notice time.Duration) { e.reclaim(id, notice) }
func (e marketEvents) VMFailed(id string)                          { e.kill(id) }
func (e marketEvents) MarketChanged() {
	if h := e.host(); h != nil {
		h.OffersChanged()
	}
}
