package redytier

import (
	"crypto/rand"
	"errors"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// A cache refuses what the manager would refuse, before anything changes: a configuration
// outside the bounds, processors that are granted to others, and any change while the manager
// does not answer.
func TestReconfigureThatCannotBeSettled(t *testing.T) {
	m := manage(t, 2, 0)
	m.announce(t, 8)
	deaf := errors.New("the manager is away")
	var away error
	mgr := &gateManager{Manager: m, before: func(call string) error {
		if call == "settle" {
			return away
		}
		return nil
	}}
	was := Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4, QueueDepth: 4}
	cache := m.create(t, mgr, Config{Capacity: 2 * managedRegion, Configuration: was})
	// Another cache is granted all other processors, and has not connected yet.
	other, err := m.Allocate(t.Context(), connect.NewRequest(&managerv1.AllocateRequest{
		RequestId: rand.Text(), Capacity: managedRegion, RegionSize: managedRegion,
		Configuration: &managerv1.Configuration{ClientThreads: 3, ServerThreads: 3, BatchSize: 2, QueueDepth: 1},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		to   Configuration
		away error
		is   error
	}{
		"queue depth":     {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4, QueueDepth: 64}},
		"batches":         {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4096, QueueDepth: 4}},
		"client threads":  {to: Configuration{ClientThreads: 1025, ServerThreads: 1, BatchSize: 4, QueueDepth: 4}},
		"wraps around":    {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4, QueueDepth: 1<<32 + 4}},
		"processors":      {to: Configuration{ClientThreads: 2, ServerThreads: 2, BatchSize: 4, QueueDepth: 4}, is: ErrCores},
		"no manager":      {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 8, QueueDepth: 4}, away: deaf, is: deaf},
		"no manager less": {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 8, QueueDepth: 2}, away: deaf, is: deaf},
	} {
		away = tc.away
		if err := cache.Reconfigure(t.Context(), tc.to); err == nil || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v", name, err)
		}
		away = nil
		if now := cache.Configuration(); now != was {
			t.Fatalf("%s: the cache has %+v", name, now)
		}
	}
	if _, err := m.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: other.Msg.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	if err := cache.Reconfigure(t.Context(), Configuration{ClientThreads: 2, ServerThreads: 2, BatchSize: 4, QueueDepth: 16}); err != nil {
		t.Error(err)
	}
	m.agree(t, cache)
	if err := cache.Reshape(t.Context(), 3*managedRegion, SLO{}); err != nil {
		t.Error(err)
	}
	m.agree(t, cache)
}
