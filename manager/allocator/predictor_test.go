package allocator

import (
	"testing"
	"time"

	"github.com/redykv/redykv/manager/menu"
)

func TestPredictor(t *testing.T) {
	p := NewPredictor()
	spot, other := menu.Kind{Type: "a", Spot: true}, menu.Kind{Type: "b", Spot: true}
	for range enoughReclaims - 1 {
		p.Observe(spot, 10*time.Minute, true)
	}
	if got := p.Lifetime(spot, 0); got != 0 {
		t.Errorf("%v after too few reclaims, want nothing", got)
	}
	p.Observe(spot, 10*time.Minute, true)
	if got := p.Lifetime(spot, 0); got != 10*time.Minute {
		t.Errorf("%v, want 10m", got)
	}
	// A VM that was given back adds its lifetime, but is no reclaim.
	p.Observe(spot, 30*time.Minute, false)
	if got := p.Lifetime(spot, 0); got != 20*time.Minute {
		t.Errorf("%v, want 20m: an hour for three reclaims", got)
	}
	// Neither are VMs that still run.
	if got := p.Lifetime(spot, 3*time.Hour); got != 80*time.Minute {
		t.Errorf("%v, want 1h20m: four hours for three reclaims", got)
	}
	if got := p.Lifetime(other, time.Hour); got != 0 {
		t.Errorf("%v of a kind that nobody has seen", got)
	}
}
