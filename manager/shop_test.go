package manager

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
)

// counting is an in-process allocator that counts its launches.
type counting struct {
	*allocator.InProcess

	launches atomic.Int32
}

func (c *counting) Launch(ctx context.Context, spec allocator.VMSpec) error {
	c.launches.Add(1)
	return c.InProcess.Launch(ctx, spec)
}

// An allocator's memory limit applies to all VM types together. A cache that does not fit
// is refused before a VM is launched, and the capacity named in the error can be allocated.
func TestMemoryOfAllTypes(t *testing.T) {
	const mib = 1 << 20
	m, err := menu.Parse([]byte(`{"version": 1, "types": [
		{"name": "small", "memory": "8MiB", "sold": [{"cloud_region": "here", "distance": 1, "price": 0.012, "available": 16}]},
		{"name": "medium", "memory": "32MiB", "sold": [
			{"cloud_region": "here", "distance": 1, "price": 0.026, "available": 8},
			{"cloud_region": "here", "distance": 3, "price": 0.024, "available": 16}]},
		{"name": "large", "memory": "64MiB", "sold": [{"cloud_region": "here", "distance": 1, "price": 0.01, "available": 4}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	inProcess, err := allocator.NewInProcess(allocator.InProcessOptions{Memory: 92 * mib, Menu: &m, Market: menu.Options{Step: -1}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	a := &counting{InProcess: inProcess}
	_, client := serve(t, Options{Allocator: a, Economy: Economy{Every: -1}})
	ctx := testContext(t)
	refused := func(capacity, want uint64) {
		t.Helper()
		before := a.launches.Load()
		_, err := client.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: capacity}))
		var refusal *connect.Error
		if !errors.As(err, &refusal) || refusal.Code() != connect.CodeResourceExhausted {
			t.Fatalf("%d bytes: %v, want it refused", capacity, err)
		}
		few, ok := errors.AsType[*api.CapacityError](api.Typed(err))
		if !ok || few.Available != want {
			t.Errorf("%d bytes: %v, want %d available", capacity, err, want)
		}
		if n := a.launches.Load() - before; n != 0 {
			t.Errorf("%d VMs were launched for what was refused: %v", n, err)
		}
	}
	for _, capacity := range []uint64{128 * mib, 92 * mib, 89 * mib} {
		refused(capacity, 88*mib)
	}
	// Three small VMs and one large one fit; two large ones would have been cheaper.
	for _, size := range []uint64{0, 8 * mib} {
		before := a.launches.Load()
		r, err := client.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 88 * mib, RegionSize: size}))
		if err != nil {
			t.Fatal(err)
		}
		if n := a.launches.Load() - before; n != 4 {
			t.Errorf("%d VMs were launched, want 4", n)
		}
		refused(8*mib, 0)
		if _, err := client.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: r.Msg.GetCacheId()})); err != nil {
			t.Fatal(err)
		}
	}
}
