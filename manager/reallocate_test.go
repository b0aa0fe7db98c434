package manager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
)

// newSeller returns an allocator that sells VMs of 4 MiB in one cloud region.
func newSeller(t *testing.T) allocator.Allocator {
	t.Helper()
	m, err := menu.Parse([]byte(`{"version": 1, "types": [{"name": "v", "memory": "4MiB", "sold": [
		{"cloud_region": "here", "distance": 1, "price": 1}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Menu: &m, Market: menu.Options{Step: -1}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A failed Reallocate leaves the warm pools unchanged, and the next one uses them, whether
// or not its client named the cloud region.
func TestFailedReallocateLeavesPools(t *testing.T) {
	pool := WarmPool{Type: "v", Count: 1}
	s := newCrashStore()
	m, client := serve(t, Options{Allocator: newSeller(t), Warm: []WarmPool{pool}, Economy: Economy{Every: -1}, store: s})
	ctx := testContext(t)
	if err := m.led().fillPool(ctx, m.opts.Warm[0]); err != nil {
		t.Fatal(err)
	}
	m.led().rest(t)
	idle := func() (all []*vm) {
		m.led().state.mu.Lock()
		defer m.led().state.mu.Unlock()
		for _, v := range m.led().state.vms {
			if v.warm {
				all = append(all, v)
			}
		}
		return all
	}
	before := idle()
	if len(before) != 1 {
		t.Fatalf("%d VMs are warm", len(before))
	}
	r, err := client.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 4 << 20, RegionSize: 1 << 20, CloudRegion: "here"}))
	if err != nil {
		t.Fatal(err)
	}
	more := &managerv1.ReallocateRequest{Change: nextChange(), CacheId: r.Msg.GetCacheId(), Regions: 4}
	left, leave := context.WithCancel(ctx)
	leave()
	if _, err := m.led().reallocate(left, more); connect.CodeOf(err) != connect.CodeCanceled {
		t.Fatalf("nobody is there to be answered: %v", err)
	}
	if after := idle(); len(after) != 1 || after[0] != before[0] {
		t.Errorf("%d VMs are warm, want the one that was", len(after))
	}
	m.led().state.check(t)
	answer, err := client.Reallocate(ctx, connect.NewRequest(more))
	if err != nil {
		t.Fatal(err)
	}
	if id := answer.Msg.GetGrants()[0].GetVm().GetId(); id != before[0].id {
		t.Errorf("VM %s, want the warm one", id)
	}
	m.led().state.check(t)
}

// After a restart, a cache whose client named no cloud region is in the allocator's region.
func TestRegionIsNamedOnRestart(t *testing.T) {
	s := newCrashStore()
	opts := Options{Allocator: newSeller(t), Heartbeat: time.Hour, Lease: -1, Logger: quiet(), store: s}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	r, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	id := r.Msg.GetCacheId()
	where := func() {
		t.Helper()
		if d, err := m.led().state.demand(id); err != nil || d.cloudRegion != "here" {
			t.Errorf("cloud region %q, %v", d.cloudRegion, err)
		}
		if err := m.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	where()
	stored := new(catalogv1.Cache)
	if err := proto.Unmarshal(s.entries["cache/"+id].Value, stored); err != nil {
		t.Fatal(err)
	}
	stored.Demand.CloudRegion = ""
	value, err := proto.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	s.put("cache/"+id, value)
	opts.Allocator = newSeller(t)
	if m, err = New(opts); err != nil {
		t.Fatal(err)
	}
	where()
}

// The number of pending grants of a client that reallocates and never settles is bounded.
func TestPendingSharesAreBounded(t *testing.T) {
	m, client := serve(t, Options{})
	ctx := testContext(t)
	if err := m.led().state.register(testVM("a", 1<<30, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxGrantsPerCache - 1 { // VMs with room for one region each
		if err := m.led().state.register(testVM(fmt.Sprint("small", i), 1<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	more := &managerv1.ReallocateRequest{CacheId: ca.GetCacheId(), AvoidVms: []string{"a"}}
	for _, more.Regions = range []uint32{maxVMsPerCache, maxVMsPerCache - 1} {
		more.Change = nextChange()
		if _, err := m.led().reallocate(ctx, more); err != nil {
			t.Fatal(err)
		}
	}
	more.Regions, more.AvoidVms = 1, nil
	more.Change = nextChange()
	_, err = m.led().reallocate(ctx, more)
	if _, ok := errors.AsType[*api.CapacityError](err); !ok || connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	m.led().state.check(t)
}

// A cache whose only server was started again under its id gets memory there, although the former
// incarnation's grants are still the cache's, and its client avoids that incarnation. Events name
// the incarnation that they are about.
func TestReallocateOnARestartedServer(t *testing.T) {
	m, client := serve(t, Options{})
	ctx := testContext(t)
	v := testVM("node", 1<<20, 0, "http://127.0.0.1:1")
	register := func() {
		t.Helper()
		if err := m.led().state.register(v, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	register()
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	lost := v.Start
	v.Start++
	register()
	known, _ := m.led().state.watched(ca.GetCacheId())
	events, _, _ := m.led().state.eventsAfter(known, nil, 0, time.Now())
	if len(events) != 1 || events[0].GetKind() != managerv1.WatchResponse_KIND_VM_FAILED || events[0].GetVmId() != "node" || events[0].GetStart() != lost {
		t.Errorf("events %v, want that start %d of the VM has failed", events, lost)
	}
	more := func(starts ...uint64) ([]*managerv1.Grant, error) {
		req := &managerv1.ReallocateRequest{CacheId: ca.GetCacheId(), Change: nextChange(), Regions: 1}
		for _, start := range starts {
			req.LostVms = append(req.LostVms, &managerv1.VmIncarnation{VmId: "node", Start: start})
		}
		r, err := client.Reallocate(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return r.Msg.GetGrants(), nil
	}
	for _, avoided := range [][]uint64{{v.Start}, {lost, v.Start}, {0}} {
		if grants, err := more(avoided...); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("without starts %d: %v, %v", avoided, grants, err)
		}
	}
	if grants, err := more(lost); err != nil || len(grants) != 1 || grants[0].GetVm().GetStart() != v.Start {
		t.Errorf("%v, %v: want memory of the server that runs", grants, err)
	}
	m.led().state.check(t)
}
