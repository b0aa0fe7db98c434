package redytier

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
)

// A cache grows and shrinks in place, moves for another SLO, and changes its data path. The
// manager's record agrees each time.
func TestReshapeManaged(t *testing.T) {
	forManaged(t, func(t *testing.T, m *managed, cfg Config) {
		cache := m.create(t, m, cfg)
		before := func() map[string]bool {
			vms := map[string]bool{}
			for _, r := range cache.Regions() {
				vms[r.VM] = true
			}
			return vms
		}
		during(t, cache, managedRegion, func() {
			for _, configuration := range reconfigurations(cfg.Configuration) {
				if err := cache.Reconfigure(t.Context(), configuration); err != nil {
					t.Fatal(err)
				}
				m.agree(t, cache)
			}
			slo := SLO{}
			for _, step := range []struct {
				regions float64
				slo     SLO
			}{{5.5, SLO{}}, {5.75, SLO{}}, {1, SLO{}}, {3, SLO{RecordSize: 16}}, {7, SLO{RecordSize: 16}}, {7, SLO{RecordSize: 8}}, {2, SLO{MaxLatency: time.Second, RecordSize: 8}}} {
				capacity, old := int64(step.regions*managedRegion), before()
				if err := cache.Reshape(t.Context(), capacity, step.slo); err != nil {
					t.Fatal(err)
				}
				if cache.Capacity() != capacity {
					t.Errorf("capacity %d, want %d", cache.Capacity(), capacity)
				}
				m.agree(t, cache)
				if stays := old[cache.Regions()[0].VM]; stays != (slo == step.slo) && stays {
					t.Errorf("%+v: the cache stays where it met %+v", step, slo)
				}
				slo = step.slo
			}
		})
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		m.nothingLeft(t)
	})
}

// reconfigurations returns configurations that need no more server threads than c: a VM has
// cores for the configuration that it was launched for.
func reconfigurations(c Configuration) []Configuration {
	deeper := c
	deeper.QueueDepth = 8
	return []Configuration{deeper, {ClientThreads: 1, BatchSize: 1, QueueDepth: 2}, c}
}

// The VM that a cache moves to is reclaimed, or dies. The regions stay whole, and end on a VM
// that stays (A45).
func TestTargetLeaves(t *testing.T) {
	for what, leave := range map[string]func(m *managed, vm string) bool{
		"reclaimed": func(m *managed, vm string) bool { return m.vms.Reclaim(vm, time.Hour) },
		"killed":    func(m *managed, vm string) bool { return m.vms.Kill(vm) },
	} {
		t.Run(what, func(t *testing.T) {
			m := manage(t, 2, 0)
			cache := m.create(t, m, Config{
				Transport: "shm", Configuration: configurations[0], Migration: Migration{BytesPerSecond: 1 << 20},
			})
			during(t, cache, int(cache.Capacity()), func() {
				source, target := cache.Regions()[0].VM, ""
				m.vms.Reclaim(source, time.Hour)
				testrun.Until(t, "the region has a target", func() bool { // the copying takes 125 ms
					target = cache.Regions()[0].Target
					return target != ""
				})
				if !leave(m, target) {
					t.Fatalf("no VM %s", target)
				}
				m.gone(t, source)
				m.gone(t, target)
				testrun.Until(t, "the region is stable", func() bool { return cache.Regions()[0].State == Stable })
				for _, r := range cache.Regions() {
					if r.VM == source || r.VM == target {
						t.Errorf("%+v", r)
					}
				}
			})
			m.agree(t, cache)
		})
	}
}

// gateManager is a manager whose calls a test delays or refuses.
type gateManager struct {
	Manager
	before func(call string) error
}

func (g *gateManager) Reallocate(ctx context.Context, req *connect.Request[managerv1.ReallocateRequest]) (*connect.Response[managerv1.ReallocateResponse], error) {
	if err := g.before("reallocate"); err != nil {
		return nil, err
	}
	answer, err := g.Manager.Reallocate(ctx, req)
	return answer, errors.Join(err, g.before("reallocated"))
}

func (g *gateManager) Settle(ctx context.Context, req *connect.Request[managerv1.SettleRequest]) (*connect.Response[managerv1.SettleResponse], error) {
	if err := g.before("settle"); err != nil {
		return nil, err
	}
	return g.Manager.Settle(ctx, req)
}

func (g *gateManager) Renew(ctx context.Context, req *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error) {
	if err := g.before("renew"); err != nil {
		return nil, err
	}
	return g.Manager.Renew(ctx, req)
}

// A cache is deleted at any step of a migration: the migration ends, and nothing remains on
// either side.
func TestDeletedWhileItMoves(t *testing.T) {
	for _, at := range []string{"reallocate", "reallocated", "copying", "settle"} {
		t.Run(at, func(t *testing.T) {
			m := manage(t, 2, 0)
			reached := make(chan struct{})
			var once sync.Once
			mgr := &gateManager{Manager: m, before: func(call string) error {
				if call == at {
					once.Do(func() { close(reached) })
				}
				return nil
			}}
			cache := m.create(t, mgr, Config{Transport: "shm", Configuration: configurations[1], Migration: Migration{BytesPerSecond: 1 << 20}})
			p := newPump(t, cache, 4)
			moved := make(chan error, 1)
			go func() { moved <- cache.Migrate(t.Context(), cache.Regions()[0].VM) }()
			if at == "copying" {
				testrun.Until(t, "the region is copied", func() bool { return cache.Regions()[0].State == Copying })
			} else {
				testrun.Receive(t, "the migration reaches the step", reached)
			}
			// Held while the region moves and ended by the deletion, or executed before it.
			p.do(true, make([]byte, 100), 0, func(c device.Completion) {
				if c.Err != nil && !errors.Is(c.Err, ErrDeleted) {
					t.Error(c.Err)
				}
			})
			if err := cache.Delete(t.Context()); err != nil {
				t.Error(err)
			}
			if err := testrun.Receive(t, "the migration ends", moved); err == nil && at != "settle" {
				t.Error("a deleted cache has moved")
			}
			p.close()
			m.nothingLeft(t)
		})
	}
}

// A cache lives as long as its lease is renewed, beside one whose lease ends.
func TestLeaseIsRenewed(t *testing.T) {
	const region = 16 << 10
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, scheduleMenu(region), nil)
		create := func(mgr Manager, onEvent func(Event)) *Cache {
			cache, err := Create(t.Context(), mgr, w.config(Config{
				Capacity: 2 * region, RegionSize: region, Configuration: oneSided, OnEvent: onEvent,
			}))
			if err != nil {
				t.Fatal(err)
			}
			return cache
		}
		lives := create(w.client, func(e Event) {
			if e.Kind != VMLeft { // to a cheaper VM
				t.Errorf("event %+v of a cache that is renewed", e)
			}
		})
		var deleted atomic.Bool
		ends := create(&gateManager{Manager: w.client, before: func(call string) error {
			if call == "renew" {
				return connect.NewError(connect.CodeUnavailable, errors.New("no route"))
			}
			return nil
		}}, func(e Event) {
			if e.Kind == CacheDeleted {
				deleted.Store(true)
			}
		})
		markRegions(t, lives)
		id := lives.ID()
		time.Sleep(5*scheduleLease + scheduleLease/2)
		if !deleted.Load() {
			t.Error("a cache remains that is not renewed")
		}
		if err := ends.Delete(t.Context()); err != nil { // it has been allocated again, or will be
			t.Error(err)
		}
		if d, err := w.known(); err != nil || len(d.GetCaches()) != 1 || d.GetCaches()[0].GetId() != id || lives.ID() != id {
			t.Errorf("after five leases the manager knows %v, %v", d, err)
		}
		checkMarks(t, lives)
		if err := lives.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		w.close()
	})
}

// A cache whose client cannot reach the manager loses its memory, and the client notices.
func TestLeaseEnds(t *testing.T) {
	m := manage(t, managedRegions, time.Second)
	var refused atomic.Int32
	ends := m.create(t, &gateManager{Manager: m, before: func(call string) error {
		if call != "renew" {
			return nil
		}
		refused.Add(1)
		return connect.NewError(connect.CodeUnavailable, errors.New("no route"))
	}}, Config{Transport: "shm", Configuration: configurations[1]})
	q := newPump(t, ends, 2)
	vm := ends.Regions()[0].VM
	if e := m.expect(t, CacheDeleted); e.To != ends.Capacity() {
		t.Errorf("%+v", e)
	}
	testrun.Until(t, "the client tries to renew", func() bool { return refused.Load() > 0 })
	m.gone(t, vm)
	failed := false
	for end := time.Now().Add(testrun.Patience(testrun.Bound)); !failed; {
		if time.Now().After(end) {
			t.Fatal("no read fails")
		}
		q.do(false, make([]byte, 8), 0, func(c device.Completion) { failed = c.Err != nil })
		q.drain()
	}
	q.close()
	if err := ends.Delete(t.Context()); err != nil { // it has been allocated again, or will be
		t.Error(err)
	}
	m.nothingLeft(t)
}
