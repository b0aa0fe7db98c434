package manager

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
)

// A watch continues after the watcher's last event. If the manager does not have all later
// events, the watcher gets the cache's state.
func TestWatchGoesOn(t *testing.T) {
	m, client := serve(t, Options{Transport: "tcp"})
	for _, id := range []string{"one", "two"} {
		if err := m.led().state.register(testVM(id, 1<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	first := func(after uint64) *managerv1.WatchResponse {
		t.Helper()
		stream, err := client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: ca.GetCacheId(), AfterSequence: after}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close() }()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		return stream.Msg()
	}
	// A deadline may be advanced repeatedly; each time is an event.
	far := time.Now().Add(24 * time.Hour)
	reclaim := func(n int) {
		t.Helper()
		for range n {
			far = far.Add(-time.Second)
			if _, err := m.led().reclaim("one", 0, far, "soon"); err != nil {
				t.Fatal(err)
			}
		}
	}
	reclaim(2)
	m.led().fail("two", nil, "fire")
	for after, want := range []managerv1.WatchResponse_Kind{
		managerv1.WatchResponse_KIND_VM_RECLAIMED, managerv1.WatchResponse_KIND_VM_RECLAIMED, managerv1.WatchResponse_KIND_VM_FAILED,
	} {
		e := first(uint64(after))
		if e.GetKind() != want || e.GetSequence() != uint64(after)+1 {
			t.Errorf("after %d comes %v", after, e)
		}
		if left := e.GetLeftMs(); (left > 0) != (want == managerv1.WatchResponse_KIND_VM_RECLAIMED) || left > (24*time.Hour).Milliseconds() {
			t.Errorf("%v with %d ms left", e, left)
		}
	}
	state := func(after, sequence uint64) {
		t.Helper()
		e := first(after)
		if e.GetKind() != managerv1.WatchResponse_KIND_STATE || e.GetSequence() != sequence || len(e.GetState().GetGrants()) != 2 {
			t.Fatalf("after %d comes %v, want the state at %d", after, e, sequence)
		}
		for _, s := range e.GetState().GetGrants() {
			if one := s.GetVm().GetId() == "one"; s.GetVm().GetLeaving() != one || s.GetVm().GetHealthy() != one {
				t.Errorf("after %d: VM %v", after, s.GetVm())
			}
			if s.GetVm().GetLeaving() && s.GetVm().GetDeadlineUnixMs() != far.UnixMilli() {
				t.Errorf("VM leaves at %d, want %d", s.GetVm().GetDeadlineUnixMs(), far.UnixMilli())
			}
			if left := s.GetVm().GetLeftMs(); (left > 0) != s.GetVm().GetLeaving() || left > (24*time.Hour).Milliseconds() {
				t.Errorf("VM %v has %d ms left", s.GetVm(), left)
			}
		}
	}
	state(99, 3)
	reclaim(maxEvents)
	state(0, 3+maxEvents)
	state(2, 3+maxEvents)
	if e := first(3); e.GetSequence() != 4 {
		t.Errorf("after the last that was dropped comes %v", e)
	}

	// A watcher that missed events also gets the end of the cache.
	ended := make(chan *managerv1.WatchResponse, 1)
	stream, err := client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: ca.GetCacheId(), AfterSequence: 3 + maxEvents}))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		stream.Receive()
		ended <- stream.Msg()
	}()
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	if e := testrun.Receive(t, "the last event", ended); e.GetKind() != managerv1.WatchResponse_KIND_CACHE_DELETED {
		t.Errorf("last event %v", e)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}
