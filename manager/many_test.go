package manager

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
)

// A cache has as many VMs as allowed, leaves some of them, and no cache has more.
func TestManyVMs(t *testing.T) {
	const extra = 50
	m, client := serve(t, Options{})
	ctx := testContext(t)
	for i := range maxVMsPerCache + extra { // with room for one region each
		if err := m.led().state.register(testVM(fmt.Sprint("vm", i), 1<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := allocateBytes(t, client, (maxVMsPerCache+1)<<20)
	if _, ok := errors.AsType[*api.CapacityError](api.Typed(err)); !ok {
		t.Errorf("a cache of more VMs than allowed: %v", err)
	}
	ca, err := allocateBytes(t, client, maxVMsPerCache<<20)
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, g := range ca.GetGrants() {
		used[g.GetVm().GetId()] = true
	}
	if len(ca.GetGrants()) != maxVMsPerCache || len(used) != maxVMsPerCache {
		t.Errorf("%d grants on %d VMs, want %d", len(ca.GetGrants()), len(used), maxVMsPerCache)
	}
	more, err := client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: ca.GetCacheId(), Regions: extra}))
	if err != nil {
		t.Fatal(err)
	}
	settle := &managerv1.SettleRequest{Change: nextChange(), CacheId: ca.GetCacheId(), Capacity: maxVMsPerCache << 20}
	for _, g := range append(more.Msg.GetGrants(), ca.GetGrants()[extra:]...) {
		settle.Grants = append(settle.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
	}
	settled, err := client.Settle(ctx, connect.NewRequest(settle))
	if err != nil || len(settled.Msg.GetGrants()) != maxVMsPerCache {
		t.Errorf("%d grants settled, %v", len(settled.Msg.GetGrants()), err)
	}
	m.led().state.check(t)
}
