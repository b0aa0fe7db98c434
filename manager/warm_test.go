package manager

import (
	"fmt"
	"testing"

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
