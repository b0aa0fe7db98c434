package device

import "github.com/redykv/redykv/internal/clock"

// PaceRefills sets the clock that refills of a device use. The device must not be started yet.
func PaceRefills(t *Tiered, c clock.Clock) {
	for _, tr := range t.tiers {
		if tr.refill != nil {
			tr.refill.clock = c
		}
	}
}

// CutRefills sets the size of the pieces of refills. The device must not be started yet.
func CutRefills(t *Tiered, size int) {
	for _, tr := range t.tiers {
		if tr.refill != nil {
			tr.refill.small, tr.refill.large = size, size
		}
	}
}

// Writing returns the number of pending writes on a tier.
func Writing(t *Tiered, tier int) int64 { return t.tiers[tier].writes.Load() }
