package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
)

// Measured rates and lifetimes survive a restart.
func TestLearntIsKept(t *testing.T) {
	s := newCrashStore()
	p := allocator.NewPredictor()
	m, client := serve(t, Options{Transport: "tcp", store: s, Predictor: p})
	if err := m.led().state.register(testVM("a", 1<<30, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	ca, err := allocateBytes(t, client, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{CacheId: ca.GetCacheId(), Change: nextChange(), Regions: 64})); err != nil {
		t.Fatal(err)
	}
	settle := &managerv1.SettleRequest{
		Change: nextChange(), CacheId: ca.GetCacheId(), Capacity: 64 << 20, MovedBytes: 64 << 20, MovedMs: 500,
		Grants: []*managerv1.SettledGrant{{Id: "g2", Regions: 64}},
	}
	for range 2 { // a repetition is not measured again
		if _, err := client.Settle(testContext(t), connect.NewRequest(settle)); err != nil {
			t.Fatal(err)
		}
		settle.MovedMs *= 2
	}
	kind := menu.Kind{Type: "a", CloudRegion: "here", Distance: 1, Spot: true}
	for range 3 {
		p.Observe(kind, time.Hour, true)
	}
	m.led().remember()
	again, err := reload(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.rates.of("tcp", ca.GetCacheId()); got != 128<<20 {
		t.Errorf("%v bytes a second, want 128 MiB", got)
	}
	if got := again.opts.Predictor.Lifetime(kind, 0); got != time.Hour {
		t.Errorf("lifetime %v, want 1h", got)
	}
}

// The end of a spot VM is recorded at once, and survives a restart.
func TestLifeIsKept(t *testing.T) {
	m, err := menu.Parse([]byte(`{"version": 1, "types": [{"name": "v", "memory": "4MiB", "sold": [
		{"cloud_region": "here", "distance": 1, "price": 1, "spot": {"price": 0.1, "lowest": 0.1, "highest": 0.1, "notice": "1h"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Menu: &m, Market: menu.Options{Step: -1}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	c := &handClock{now: time.Unix(1_000_000, 0)}
	s := newCrashStore()
	mgr, client := serve(t, Options{Allocator: a, Economy: Economy{Every: -1}, store: s, now: c.read})
	// The menu has spot VMs, so the manager has measured the migration rate.
	if rate := mgr.rates.of(mgr.opts.Transport, ""); rate < 1<<20 {
		t.Errorf("%v bytes a second are measured", rate)
	}
	id := allocateSpot(t, client)
	c.advance(3 * time.Hour)
	a.Reclaim(describeOne(t, client, id).GetCache().GetGrants()[0].GetVm().GetId(), time.Hour)
	again, err := reload(t, s)
	if err != nil {
		t.Fatal(err)
	}
	lives := again.opts.Predictor.(allocator.Learner).Lives()
	want := allocator.Life{Kind: menu.Kind{Type: "v", CloudRegion: "here", Distance: 1, Spot: true}, Lived: 3 * time.Hour, Reclaimed: 1}
	if len(lives) != 1 || lives[0] != want {
		t.Errorf("%v, want %v", lives, want)
	}
}

// stubborn is an allocator whose first calls of Terminate fail.
type stubborn struct {
	*allocator.InProcess
	failures atomic.Int32
	tries    chan struct{} // buffered
}

func (a *stubborn) Terminate(ctx context.Context, id, why string) error {
	a.tries <- struct{}{}
	if a.failures.Add(-1) >= 0 {
		return errors.New("not now")
	}
	return a.InProcess.Terminate(ctx, id, why)
}

// The life of a VM whose termination is repeated is observed once, also when another leader
// repeats it, and the VM is not counted among those that live.
func TestLifeIsObservedOnce(t *testing.T) {
	m, err := menu.Parse([]byte(`{"version": 1, "types": [{"name": "v", "memory": "4MiB", "sold": [
		{"cloud_region": "here", "distance": 1, "price": 1, "spot": {"price": 0.1, "lowest": 0.1, "highest": 0.1, "notice": "1h"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	sells, err := allocator.NewInProcess(allocator.InProcessOptions{Menu: &m, Market: menu.Options{Step: -1}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	a := &stubborn{InProcess: sells, tries: make(chan struct{}, 1000)}
	c, s := &handClock{now: time.Unix(1_000_000, 0)}, newCrashStore()
	mgr, client := serve(t, Options{Allocator: a, Economy: Economy{Every: -1}, MigrationRate: 1 << 40, store: s, now: c.read})
	id := allocateSpot(t, client)
	c.advance(3 * time.Hour)
	a.failures.Store(1 << 20)
	if _, _, err := mgr.led().state.deallocate(id, nil, c.read(), "deallocated"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		testrun.Receive(t, "the VM is to be terminated", a.tries)
	}
	want := allocator.Life{Kind: menu.Kind{Type: "v", CloudRegion: "here", Distance: 1, Spot: true}, Lived: 3 * time.Hour}
	lives := func(m *Manager) {
		t.Helper()
		if all := m.opts.Predictor.(allocator.Learner).Lives(); len(all) != 1 || all[0] != want {
			t.Errorf("%v, want %v", all, want)
		}
		if alive := m.led().state.alive(c.read()); len(alive) != 0 {
			t.Errorf("%v live", alive)
		}
	}
	lives(mgr)
	again, err := reload(t, s) // which has no allocator, so its VM is terminated at once
	if err != nil {
		t.Fatal(err)
	}
	again.led().rest(t)
	lives(again)
	a.failures.Store(0)
	testrun.Until(t, "the VM is terminated", func() bool { _, vms := mgr.led().state.size(); return vms == 0 })
	lives(mgr)
}

// Without a measurement the migration rate stays unknown.
func TestRateIsNotGuessed(t *testing.T) {
	m, _ := serve(t, Options{Transport: "tcp"})
	if got := m.rates.of("tcp", ""); got != 0 {
		t.Errorf("%v bytes a second", got)
	}
	if _, err := New(Options{Transport: "tcp", MigrationRate: -1}); err == nil {
		t.Error("a negative rate is taken")
	}
}

// A manager logs a warning if its setting differs from the earlier manager's.
func TestSettingIsCompared(t *testing.T) {
	s := newCrashStore()
	begin := func(transport string) string {
		t.Helper()
		var log bytes.Buffer
		m, err := New(Options{Transport: transport, URL: "http://here:1", Lease: -1, Heartbeat: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil)), store: s})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.led().keepSetting(); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	for _, first := range []string{begin("tcp"), begin("tcp")} {
		if strings.Contains(first, "WARN") {
			t.Error(first)
		}
	}
	if log := begin("shm"); !strings.Contains(log, "another transport") || !strings.Contains(log, "then=tcp now=shm") || strings.Contains(log, "another address") {
		t.Error(log)
	}
	if log := begin("shm"); strings.Contains(log, "WARN") {
		t.Error(log)
	}
}

// A manager that is started at another address than the earlier one refuses and changes
// nothing, since servers and clients would lose it, unless Options.Moved is set.
func TestAddressIsKept(t *testing.T) {
	s := newCrashStore()
	begin := func(url string, moved bool, do func(m *Manager)) error {
		t.Helper()
		m, err := New(Options{Transport: "tcp", URL: url, Moved: moved, Lease: -1, Heartbeat: time.Hour, Logger: quiet(), store: s})
		if err != nil {
			t.Fatal(err)
		}
		err = m.led().keepSetting()
		if do != nil {
			do(m)
		}
		if err := m.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		return err
	}
	const here, there = "http://here:1", "http://there:1"
	for _, url := range []string{there, here} { // nothing calls it yet
		if err := begin(url, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	joins := func(m *Manager) {
		if err := m.led().state.register(testVM("a", 1<<30, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin(here, false, joins); err != nil {
		t.Fatal(err)
	}
	kept := func() string { // without the epoch, which each manager raises
		all := maps.Clone(s.entries)
		delete(all, "epoch")
		return fmt.Sprint(all)
	}
	before := kept()
	if err := begin(there, false, nil); !errors.Is(err, ErrStateAddress) || !strings.Contains(err.Error(), "its caches (0) and VMs (1) call http://here:1, and this one is at http://there:1") {
		t.Errorf("at another address: %v", err)
	}
	if after := kept(); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
	if err := begin(here, false, nil); err != nil {
		t.Errorf("at its address: %v", err)
	}
	for _, moved := range []bool{true, false} { // the second manager is at the first one's address
		if err := begin(there, moved, nil); err != nil {
			t.Errorf("moved %v: %v", moved, err)
		}
	}
}

// A duration is a hint unless it is enforced.
func TestDurationIsEnforced(t *testing.T) {
	for _, enforced := range []bool{false, true} {
		c := &handClock{now: time.Unix(1_000_000, 0)}
		m, client := serve(t, Options{Allocator: newScripted(t, 64<<20), EnforceDuration: enforced, now: c.read})
		r, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, DurationSeconds: 60}))
		if err != nil {
			t.Fatal(err)
		}
		endless, err := allocateBytes(t, client, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got := describeOne(t, client, r.Msg.GetCacheId()).GetDurationEnforced(); got != enforced {
			t.Errorf("enforced %v: the cache says %v", enforced, got)
		}
		if describeOne(t, client, endless.GetCacheId()).GetDurationEnforced() {
			t.Error("the end of a cache without one is enforced")
		}
		m.led().expireAt(c.advance(time.Minute))
		if _, ok := m.led().state.watched(r.Msg.GetCacheId()); !ok {
			t.Error("it is gone before its time")
		}
		m.led().expireAt(c.advance(time.Second))
		if _, ok := m.led().state.watched(r.Msg.GetCacheId()); ok == enforced {
			t.Errorf("enforced %v: it is there: %v", enforced, ok)
		}
		if _, ok := m.led().state.watched(endless.GetCacheId()); !ok {
			t.Error("the cache without an end has come to one")
		}
	}
}
