package manager

import (
	"context"
	"fmt"
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
	s := catalogtest.NewFaulty(catalog.NewMemory())
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
	w.connect(first.GetCacheId(), first.GetGrants())
	if same := again(t, calls.Allocate, a); same.GetCacheId() != first.GetCacheId() || fmt.Sprint(grantedOf(same.GetGrants())) != fmt.Sprint(grantedOf(first.GetGrants())) {
		t.Errorf("repeated: %v, first %v", same, first)
	}
	id := first.GetCacheId()
	avoid := first.GetGrants()[0].GetVm().GetId()
	more := again(t, calls.Reallocate, &managerv1.ReallocateRequest{CacheId: id, Change: 1, Regions: 4, AvoidVms: []string{avoid}})
	w.connect(id, more.GetGrants())
	settle := &managerv1.SettleRequest{CacheId: id, Change: 2, Capacity: 4 << 20}
	for _, g := range more.GetGrants() {
		settle.Grants = append(settle.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
	}
	again(t, calls.Settle, settle)
	w.lead(t)
	w.check(t)
	again(t, calls.Deallocate, &managerv1.DeallocateRequest{CacheId: id})
	w.lead(t)
	s.At(at, 1, 0) // the cache may have had fewer commits
	w.finish(t, nil)
	select {
	case <-s.Killed():
		return true
	default:
		return false
	}
}
