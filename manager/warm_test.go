package manager

import (
	"fmt"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
)

// A VM of a warm pool goes to no cache before the leader's allocator has taken it over.
func TestWarmBeforeTakeover(t *testing.T) {
	c := newState(nil, func(string) {})
	v := &vm{id: "vm-a", launched: true, warm: true, VM: node.VM{ControlURL: "http://127.0.0.1:1", Transport: "mem"}}
	c.vms[v.id] = v
	if v.idle("mem") {
		t.Error("a VM that a former leader may end is free for a cache")
	}
	c.restored([]string{v.id})
	if !v.idle("mem") {
		t.Error("a VM that was taken over is not free for a cache")
	}
}

// VMs that no warm pool needs any more are terminated, the newest first.
func TestWarmPoolsAreTrimmed(t *testing.T) {
	catalog, err := menu.Parse([]byte(`{"version": 1, "types": [
		{"name": "v", "memory": "4MiB", "sold": [{"cloud_region": "here", "distance": 1, "price": 1}]},
		{"name": "w", "memory": "4MiB", "sold": [{"cloud_region": "here", "distance": 1, "price": 1}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Menu: &catalog, Market: menu.Options{Step: -1}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := serve(t, Options{Allocator: a, Warm: []WarmPool{{Type: "v", Count: 1}}, Economy: Economy{Every: -1}})
	l := m.led()
	warm := func() (all []*vm) {
		l.state.mu.Lock()
		defer l.state.mu.Unlock()
		for _, v := range l.state.orders {
			all = append(all, v)
		}
		return all
	}
	testrun.Until(t, "the pool is full", func() bool { return len(warm()) == 1 })
	first := warm()[0]
	for _, earlier := range []WarmPool{{Type: "v", CloudRegion: "here", Count: 3}, {Type: "w", CloudRegion: "here", Count: 2}} {
		if err := l.fillPool(testContext(t), earlier); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Until(t, "what the pool does not need is terminated", func() bool { return len(warm()) == 1 })
	if last := warm()[0]; last != first {
		t.Errorf("VM %s is left, want %s", last.id, first.id)
	}
	l.state.check(t)
}

// A VM that a cache has, or gives back, is none that a former leader may be terminating.
func TestLaunchedIDs(t *testing.T) {
	c := newState(nil, func(string) {})
	for _, v := range []*vm{
		{id: "vm-lent", launched: true, lent: 1}, {id: "vm-idle", launched: true}, {id: "registered"}, {id: "registered-lent", lent: 1},
	} {
		c.vms[v.id] = v
	}
	if lent, idle := c.launchedIDs(); fmt.Sprint(lent, idle) != "[vm-lent] [vm-idle]" {
		t.Errorf("lent %v, idle %v", lent, idle)
	}
}
