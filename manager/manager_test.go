package manager

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// A manager that closes ends its watches and refuses further calls.
func TestCloseEndsWatches(t *testing.T) {
	a := newScripted(t, 64<<20)
	m, client := serve(t, Options{Allocator: a})
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: ca.GetCacheId()}))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("watch: %v, %v", stream.Msg(), stream.Err())
	}
	if err := stream.Close(); err != nil {
		t.Log(err) // the connection is gone
	}
	if _, err := (service{m: m}).Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{Capacity: 1})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("allocation afterwards: %v", err)
	}
	if len(a.nodes) != 0 || a.budget.used != 0 {
		t.Errorf("%d VMs left, %d bytes", len(a.nodes), a.budget.used)
	}
}

// A manager that closes while a VM is being launched takes it back.
func TestCloseDuringAllocate(t *testing.T) {
	a := newScripted(t, 64<<20)
	a.expect("ok", "silent")
	m, _ := serve(t, Options{Allocator: a, VMMemory: 1 << 20})
	failed := make(chan error)
	go func() {
		_, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{Capacity: 2 << 20, RegionSize: 1 << 20}))
		failed <- err
	}()
	<-a.silent
	if err := m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("error %v", err)
	}
	if len(a.nodes) != 0 || a.budget.used != 0 {
		t.Errorf("%d VMs left, %d bytes", len(a.nodes), a.budget.used)
	}
}

// A caller who has left gets no cache: nobody would ever deallocate it.
func TestAllocateForNobody(t *testing.T) {
	a := newScripted(t, 64<<20)
	m, _ := serve(t, Options{Allocator: a})
	ctx, leave := context.WithCancel(testContext(t))
	leave()
	_, err := service{m: m}.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{Capacity: 1}))
	if connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("error %v", err)
	}
	if d := m.catalog.describe(); len(d.GetCaches())+len(d.GetVms())+len(a.nodes) != 0 || a.budget.used != 0 {
		t.Errorf("left over: %v, %d VMs, %d bytes", d, len(a.nodes), a.budget.used)
	}
}
