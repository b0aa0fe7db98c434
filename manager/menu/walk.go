package menu

import (
	"math"

	"github.com/redykv/redykv/manager/plan"
)

// Changes of spot kinds in each step: the logarithm of a price is a random walk that
// reverts to the menu's price, and at random times other customers buy or return a VM.
const (
	spread   = 0.05 // standard deviation of a step, as a share of the price
	drawBack = 0.05 // of the distance to the menu's price
	trade    = 0.2  // chance that another customer buys or returns a VM
)

// schedule sets the timer of the next step. Called under mu, or while the market is not
// shared.
func (m *Market) schedule() {
	if m.opts.Step > 0 && !m.closed {
		m.step = m.opts.Clock.AfterFunc(m.opts.Step, m.walk)
	}
}

// walk makes one step of all spot kinds.
func (m *Market) walk() {
	m.mu.Lock()
	better := false
	for _, k := range m.kinds {
		if k.Spot && !k.fixed {
			better = m.wander(k) || better
		}
	}
	m.schedule()
	closed := m.closed
	m.mu.Unlock()
	if better && !closed {
		m.events.MarketChanged()
	}
}

// wander changes one kind and reports whether it is a better offer now. Called under mu.
func (m *Market) wander(k *kind) bool {
	spot, price, left := k.sold.Spot, k.price, k.left()
	if spot.Price > 0 {
		at := math.Log(max(price.Dollars(), spot.Lowest))
		at += drawBack*(math.Log(spot.Price)-at) + spread*m.random.NormFloat64()
		k.price = plan.Dollars(min(max(math.Exp(at), spot.Lowest), spot.Highest))
	}
	if k.limit > 0 && m.random.Float64() < trade {
		if m.random.IntN(2) == 0 {
			k.others = min(k.others+1, max(0, k.limit-k.ours))
		} else {
			k.others = max(0, k.others-1)
		}
	}
	return k.price < price || k.left() > left
}
