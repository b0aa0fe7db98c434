package allocator

import (
	"context"
	"fmt"
	"time"

	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// Marketer is an [Allocator] with a simulated market.
type Marketer interface {
	Allocator
	// Market returns nil if VMs have any size.
	Market() *menu.Market
}

// shop sells VMs: those of a simulated market, or, without one, VMs of any size for
// nothing.
type shop struct {
	market *menu.Market // nil: none
	budget *budget      // memory of all VMs
}

// newShop returns a shop of so many bytes, 0 for the machine's memory. m may be nil.
func newShop(memory uint64, m *menu.Menu, opts menu.Options, events menu.Events) (s shop, err error) {
	if s.budget, err = newBudget(memory); err == nil && m != nil {
		s.market, err = menu.NewMarket(*m, opts, events)
	}
	return s, err
}

// Market implements [Marketer].
func (s shop) Market() *menu.Market { return s.market }

// Offers implements [Allocator]. The number of available VMs is limited by free memory.
func (s shop) Offers(_ context.Context, region, _ string) ([]plan.Offer, error) {
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

// Room implements [Bounded].
func (s shop) Room() uint64 { return s.budget.free() }

// buy reserves a VM and its memory. It may return [menu.ErrSoldOut].
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

// resume is buy for a VM that runs already. A VM that is no longer on the menu keeps
// running, and the market does not let it fail.
func (s shop) resume(id string, kind menu.Kind, memory uint64) {
	s.budget.hold(memory)
	if s.market != nil {
		_ = s.market.Resume(id, kind)
	}
}

// giveBack undoes buy or resume. It is called once for each VM.
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

// marketEvents reports a market's events to an allocator and its manager.
type marketEvents struct {
	host    func() Host
	kill    func(id string) bool
	reclaim func(id string, notice time.Duration) bool
}

func (e marketEvents) VMReclaimed(id string, notice time.Duration) { e.reclaim(id, notice) }
func (e marketEvents) VMFailed(id string)                          { e.kill(id) }
func (e marketEvents) MarketChanged() {
	if h := e.host(); h != nil {
		h.OffersChanged()
	}
}
