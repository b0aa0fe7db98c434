package redytier

import (
	"bytes"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
)

// A cache refuses what the manager would refuse, before anything changes: a configuration
// outside the bounds, processors that are granted to others, and any change while the manager
// does not answer.
func TestReconfigureThatCannotBeSettled(t *testing.T) {
	m := manage(t, 2, 0)
	m.announce(t, 8)
	deaf := errors.New("the manager is away")
	var isAway atomic.Bool
	mgr := &gateManager{Manager: m, before: func(call string) error {
		if call == "settle" && isAway.Load() {
			return deaf
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
		away bool
		is   error
	}{
		"queue depth":     {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4, QueueDepth: 64}},
		"batches":         {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4096, QueueDepth: 4}},
		"client threads":  {to: Configuration{ClientThreads: 1025, ServerThreads: 1, BatchSize: 4, QueueDepth: 4}},
		"wraps around":    {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4, QueueDepth: 1<<32 + 4}},
		"processors":      {to: Configuration{ClientThreads: 2, ServerThreads: 2, BatchSize: 4, QueueDepth: 4}, is: ErrCores},
		"no manager":      {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 8, QueueDepth: 4}, away: true, is: deaf},
		"no manager less": {to: Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 8, QueueDepth: 2}, away: true, is: deaf},
	} {
		isAway.Store(tc.away)
		if err := cache.Reconfigure(t.Context(), tc.to); err == nil || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v", name, err)
		}
		isAway.Store(false)
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

// The manager asks for another configuration, and the cache has it, with its contents. A wish that
// is about an earlier configuration, or that the cache cannot have, changes nothing.
func TestReconfigureForTheManager(t *testing.T) {
	m := manage(t, 2, 0)
	m.announce(t, 8)
	was, to := Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 4}, Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4, QueueDepth: 8}
	cache := m.create(t, m, Config{Capacity: 2 * managedRegion, Configuration: was})
	want := bytes.Repeat([]byte("kept"), 1000)
	wrote := make(chan error, 1)
	if err := cache.Write(t.Context(), want, 4000, func(_ int, err error) { wrote <- err }); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "the write ends", wrote); err != nil {
		t.Fatal(err)
	}
	asks := func(to, insteadOf Configuration, saves bool) {
		cache.watcher.apply(&managerv1.WatchResponse{
			Kind: managerv1.WatchResponse_KIND_RECONFIGURE, Configuration: to.proto(), InsteadOf: insteadOf.proto(), Saving: saves,
		})
		// A task of the application comes after those that the manager asked for, as the controller
		// is idle, and ends when they have ended.
		if err := cache.Reconfigure(t.Context(), cache.Configuration()); err != nil {
			t.Fatal(err)
		}
	}
	asks(to, to, false)
	asks(Configuration{ClientThreads: 2, ServerThreads: 3, BatchSize: 4, QueueDepth: 8}, was, false)
	if now := cache.Configuration(); now != was {
		t.Fatalf("the cache has %+v", now)
	}
	cache.watcher.apply(&managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_RECONFIGURE})
	cache.watcher.apply(&managerv1.WatchResponse{
		Kind: managerv1.WatchResponse_KIND_RECONFIGURE, Configuration: to.proto(), InsteadOf: was.proto(),
	})
	testrun.Until(t, "the cache has the new configuration", func() bool { return cache.Configuration() == to })
	m.agree(t, cache)
	got, read := make([]byte, len(want)), make(chan error, 1)
	if err := cache.Read(t.Context(), got, 4000, func(_ int, err error) { read <- err }); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(got, testrun.Receive(t, "the read ends", read)).Want(t, want, "the cache")
}
