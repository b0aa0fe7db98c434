package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
)

// again repeats a call as a client does, until a leader answers it.
func again[Q, A any](t *testing.T, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q) *A {
	t.Helper()
	ctx := testContext(t)
	for {
		answer, err := call(ctx, connect.NewRequest(req))
		if err == nil {
			return answer.Msg
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || !clock.Sleep(ctx, time.Millisecond) {
			t.Fatal(err)
		}
	}
}

// lead waits until the world's manager leads, and its reconcilers have nothing to do.
func (w *world) lead(t *testing.T) {
	t.Helper()
	for ctx := testContext(t); ; {
		if l, err := w.m.leading(); err == nil {
			w.l = l
			l.rest(t)
			if l.ctx.Err() == nil {
				return
			}
		}
		if !clock.Sleep(ctx, time.Millisecond) {
			t.Fatal("no manager leads")
		}
	}
}

// faultyMemory is a catalog in memory whose commits fail on request.
type faultyMemory struct{ *catalogtest.Faulty }

// keys returns the keys of all records.
func (s faultyMemory) keys(t *testing.T, m *Manager) (all []string) {
	t.Helper()
	l := m.led()
	if err := l.office.Load(testContext(t), func(r catalog.Record) error {
		all = append(all, r.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// borrow connects new grants, and checks that no server lends more than it has.
func (w *world) borrow(cache string, grants []*managerv1.Grant) {
	w.t.Helper()
	w.connect(cache, grants)
	l, err := w.m.leading()
	if err != nil {
		return // it was killed
	}
	has, lends := make(map[string]uint64), make(map[string]uint64)
	for _, ca := range l.state.describe().GetCaches() {
		for _, g := range ca.GetGrants() {
			id := g.GetVm().GetId()
			has[id] = g.GetVm().GetMemory()
			lends[id] += uint64(g.GetRegions()) * ca.GetRegionSize()
		}
	}
	for id, bytes := range lends {
		if bytes > has[id] {
			w.t.Errorf("VM %s lends %d of %d bytes", id, bytes, has[id])
		}
	}
}

// The leader is killed at each commit of a cache's life, before or after it is stored, and
// the client repeats the call that was not answered.
func TestKilledAtEachCommit(t *testing.T) {
	for _, pool := range []bool{false, true} {
		for fault, name := range map[catalogtest.Fault]string{catalogtest.KillBefore: "before", catalogtest.KillAfter: "after"} {
			t.Run(fmt.Sprintf("pool %v, %s", pool, name), func(t *testing.T) {
				for k := 0; life(t, pool, k, fault); k++ {
					if t.Failed() {
						t.Fatalf("killed at commit %d", k)
					}
				}
			})
		}
	}
}

// life allocates, changes and deallocates a cache, whose leader is killed at the k-th commit.
// It reports whether there was one.
func life(t *testing.T, pool bool, k int, fault catalogtest.Fault) bool {
	w, _ := newWorld(t, 0)
	if err := w.m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	s := faultyMemory{catalogtest.NewFaulty(catalog.NewMemory())}
	w.opts.store = s
	w.start()
	if pool {
		for id := range 2 {
			name := fmt.Sprintf("pool-%d", id)
			if err := w.l.state.register(testVM(name, 8<<20, 2, w.control(name)), "", w.clock.read().Add(24*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.lead(t)
	at := s.Commits() + k
	s.At(at, 1, fault)
	calls := service{m: w.m}

	a := &managerv1.AllocateRequest{Capacity: 4 << 20, RegionSize: randomRegion, RequestId: "a cache whose leader is killed"}
	first := again(t, calls.Allocate, a)
	w.borrow(first.GetCacheId(), first.GetGrants())
	if same := again(t, calls.Allocate, a); same.GetCacheId() != first.GetCacheId() || fmt.Sprint(grantedOf(same.GetGrants())) != fmt.Sprint(grantedOf(first.GetGrants())) {
		t.Errorf("repeated: %v, first %v", same, first)
	}
	id := first.GetCacheId()
	avoid := first.GetGrants()[0].GetVm().GetId()
	more := again(t, calls.Reallocate, &managerv1.ReallocateRequest{CacheId: id, Change: 1, Regions: 4, AvoidVms: []string{avoid}})
	w.borrow(id, more.GetGrants())
	settle := func(change uint64, grants []*managerv1.Grant) {
		req := &managerv1.SettleRequest{CacheId: id, Change: change, Capacity: 4 << 20}
		for _, g := range grants {
			req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
		}
		for range 2 { // a Settle may be repeated
			again(t, calls.Settle, req)
		}
		w.lead(t)
		w.check(t)
	}
	settle(2, more.GetGrants())

	// One VM is reclaimed, another one of the cache fails, and both are replaced.
	leaves := more.GetGrants()[0].GetVm().GetId()
	again(t, calls.Reclaim, &managerv1.ReclaimRequest{VmId: leaves, NoticeMs: 60_000})
	again(t, calls.Reclaim, &managerv1.ReclaimRequest{VmId: leaves, NoticeMs: 60_000})
	if !pool {
		w.kill()
	}
	w.lead(t)
	next := &managerv1.ReallocateRequest{CacheId: id, Change: 3, Regions: 4}
	for _, g := range more.GetGrants() {
		next.AvoidVms = append(next.AvoidVms, g.GetVm().GetId())
	}
	instead := again(t, calls.Reallocate, next)
	w.borrow(id, instead.GetGrants())
	if same := again(t, calls.Reallocate, next); fmt.Sprint(grantedOf(same.GetGrants())) != fmt.Sprint(grantedOf(instead.GetGrants())) {
		t.Errorf("repeated: %v, first %v", same, instead)
	}
	settle(4, instead.GetGrants())
	again(t, calls.Deallocate, &managerv1.DeallocateRequest{CacheId: id})
	w.lead(t)
	s.At(at, 1, 0) // the cache may have had fewer commits
	w.finish(t, nil)
	for _, key := range s.keys(t, w.m) {
		if kind, _, record := strings.Cut(key, "/"); record && kind+"/" != vmPrefix {
			t.Errorf("record %s is left", key)
		}
	}
	select {
	case <-s.Killed():
		return true
	default:
		return false
	}
}
