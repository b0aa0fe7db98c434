package manager

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
)

// refusedAsEnded checks that an Allocate is refused because its cache has ended.
func refusedAsEnded(t *testing.T, m *Manager, req *managerv1.AllocateRequest, cache string) {
	t.Helper()
	_, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(req))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), cache+" has ended") {
		t.Errorf("a late Allocate of cache %s: %v", cache, err)
	}
}

// The next leader remembers an ended cache, and forgets it.
func TestEndedIsKept(t *testing.T) {
	store := newCrashStore()
	open := func() *Manager {
		m, _ := serve(t, Options{Transport: "tcp", store: store, Moved: true})
		return m
	}
	m := open()
	if err := m.led().state.register(testVM("server", 1<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	req := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20}
	ca, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	id := ca.Msg.GetCacheId()
	if _, _, err := m.led().state.deallocate(id, nil, time.Now(), "deallocated"); err != nil {
		t.Fatal(err)
	}
	store = store.next()
	m = open()
	refusedAsEnded(t, m, req, id)
	m.led().expireAt(time.Now().Add(endedFor + 2*endedMore))
	store = store.next()
	if m = open(); len(m.led().state.ended) != 0 {
		t.Errorf("the next leader still remembers %v", m.led().state.ended)
	}
}

// A cache that is deallocated while it waits for its VMs has ended, too.
func TestPendingCacheEnds(t *testing.T) {
	a := newScripted(t, 64<<20)
	a.expect("silent")
	m, _ := serve(t, Options{Allocator: a})
	req := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20, WaitMs: 1}
	ca, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(req))
	if err != nil || len(ca.Msg.GetPending()) != 1 {
		t.Fatalf("%v, %v", ca, err)
	}
	id := ca.Msg.GetCacheId()
	if _, err := (service{m: m}).Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id})); err != nil {
		t.Fatal(err)
	}
	refusedAsEnded(t, m, req, id)
}

// Repetitions that are served at the same time get one cache.
func TestAllocateTwiceAtOnce(t *testing.T) {
	m, _ := serve(t, Options{Allocator: newScripted(t, 64<<20)})
	for range 20 {
		req := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20}
		var ids sync.Map
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				ca, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(req))
				if err != nil {
					t.Error(err)
					return
				}
				ids.Store(ca.Msg.GetCacheId(), nil)
			})
		}
		calls.Wait()
		ids.Range(func(id, _ any) bool {
			_, err := service{m: m}.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id.(string)}))
			if err != nil {
				t.Error(err)
			}
			ids.Delete(id)
			ids.Range(func(other, _ any) bool { t.Errorf("caches %v and %v", id, other); return false })
			return false
		})
	}
}

// Forgetting many ended caches takes few transactions, and a few wait for others.
func TestForgetEnded(t *testing.T) {
	store := catalogtest.NewFaulty(catalog.NewMemory())
	m, _ := serve(t, Options{Transport: "tcp", store: store})
	const many, few = 2*catalog.MaxChanges + 1, 3
	s, at := m.led().state, time.Unix(1_000_000, 0)
	end := func(n int, at time.Time) {
		for i := range n {
			ca := &cache{stored: new(stored), id: fmt.Sprintf("cache-%d-%d", at.Unix(), i), requestID: newRequestID(), log: newEventLog()}
			ca.decisions.of = ca
			s.mu.Lock()
			s.caches[ca.id] = ca
			s.mu.Unlock()
			if _, _, err := s.deallocate(ca.id, nil, at, "deallocated"); err != nil {
				t.Fatal(err)
			}
		}
	}
	end(many, at)
	end(few, at.Add(time.Second))
	forget := func(now time.Time, left, commits int) {
		t.Helper()
		before := store.CommitsOf("cache") // a leader that has just begun writes other records
		if err := s.forgetEnded(now); err != nil {
			t.Fatal(err)
		}
		if made := store.CommitsOf("cache") - before; len(s.ended) != left || made > commits {
			t.Errorf("after %v: %d are remembered, want %d; %d commits, want at most %d", now.Sub(at), len(s.ended), left, made, commits)
		}
	}
	forget(at.Add(endedFor), many+few, 0)
	forget(at.Add(endedFor+time.Second), few, 3)
	forget(at.Add(endedFor+endedMore), few, 0)
	forget(at.Add(endedFor+endedMore+2*time.Second), 0, 1)
}
