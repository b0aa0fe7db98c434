package redytier

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
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
				until(t, func() bool { // the copying takes 125 ms
					target = cache.Regions()[0].Target
					return target != ""
				})
				if !leave(m, target) {
					t.Fatalf("no VM %s", target)
				}
				m.gone(t, source)
				m.gone(t, target)
				until(t, func() bool { return cache.Regions()[0].State == Stable })
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
				until(t, func() bool { return cache.Regions()[0].State == Copying })
			} else {
				<-reached
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
			if err := <-moved; err == nil && at != "settle" {
				t.Error("a deleted cache has moved")
			}
			p.close()
			m.nothingLeft(t)
		})
	}
}

// A cache lives as long as its lease is renewed. A cache whose client cannot reach the manager
// loses its memory, and the client notices.
func TestLease(t *testing.T) {
	const lease = time.Second // long enough for a busy machine to renew in time
	m := manage(t, managedRegions, lease)
	renewed := make(chan struct{}, 1)
	lives := m.create(t, &gateManager{Manager: m, before: func(call string) error {
		if call == "renew" {
			offer(renewed)
		}
		return nil
	}}, Config{Transport: "shm", Configuration: configurations[1]})
	words := bytes.Repeat([]byte("redy"), managedRegion)
	p := newPump(t, lives, 2)
	p.do(true, words, 0, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	p.drain()
	var refused atomic.Int32
	var cut atomic.Bool // the connection to the manager
	ends := m.create(t, &gateManager{Manager: m, before: func(call string) error {
		if call != "renew" || !cut.Load() {
			return nil
		}
		refused.Add(1)
		return connect.NewError(connect.CodeUnavailable, errors.New("no route"))
	}}, Config{Transport: "shm", Configuration: configurations[1]})
	q := newPump(t, ends, 2)
	vm := ends.Regions()[0].VM
	if vm == lives.Regions()[0].VM {
		t.Fatal("both caches are on one VM")
	}
	cut.Store(true)
	if e := m.expect(t, CacheDeleted); e.To != ends.Capacity() {
		t.Errorf("%+v", e)
	}
	if refused.Load() == 0 {
		t.Error("nobody tried to renew")
	}
	m.gone(t, vm)
	failed := false
	for !failed {
		q.do(false, make([]byte, 8), 0, func(c device.Completion) { failed = c.Err != nil })
		q.drain()
	}
	q.close()
	if err := ends.Delete(t.Context()); err != nil { // it has been allocated again, or will be
		t.Error(err)
	}
	for range 5 { // a lease and a quarter
		<-renewed
	}
	got := content(t, lives)
	if !bytes.Equal(got, words[:len(got)]) {
		t.Error("other bytes than were written, in a cache that is renewed")
	}
	m.agree(t, lives)
	p.close()
	if err := lives.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	m.nothingLeft(t)
}
