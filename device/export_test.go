package device

import "github.com/redykv/redykv/internal/clock"

// PaceRefills sets the clock by which a device that is not started yet refills its tiers.
func PaceRefills(t *Tiered, c clock.Clock) {
	for _, tr := range t.tiers {
		if tr.refill != nil {
			tr.refill.clock = c
		}
	}
}

// Writing is how many writes are under way on a tier.
func Writing(t *Tiered, tier int) int64 { return t.tiers[tier].writes.Load() }
