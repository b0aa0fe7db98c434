package manager

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
)

// A leader that ended between the records of a new grant and of its cache has used that grant's
// id: the next leader does not.
func TestGrantIDIsNotUsedAgain(t *testing.T) {
	store := newCrashStore()
	open := func() *Manager {
		m, _ := serve(t, Options{Transport: "tcp", store: store, Moved: true})
		return m
	}
	m := open()
	c := m.led().state
	if err := c.register(testVM("server", 8<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	allocated, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{
		RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20,
	}))
	if err != nil {
		t.Fatal(err)
	}
	id := allocated.Msg.GetCacheId()
	// A Reallocate of which the grant is written, and the cache is not.
	if err := func() (err error) {
		c.mu.Lock()
		defer c.end(&err)
		ca := c.caches[id]
		c.lend(c.reserve(ca, ca.demand, []part{{vm: c.vms["server"], regions: 1}}), 1)
		return nil
	}(); err != nil {
		t.Fatal(err)
	}
	store = store.next()
	m = open()
	again, err := service{m: m}.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{CacheId: id, Change: 1, Regions: 1}))
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Msg.GetGrants()[0].GetId(); got != "g3" {
		t.Errorf("the grant is %s, want g3", got)
	}
}

// A request that could not be written in time, and whose client has gone, ends when the catalog
// can be written again, though its VM never starts.
func TestUnwrittenRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := catalogtest.NewFaulty(catalog.NewMemory())
		a := newScripted(t, 64<<20)
		a.expect("silent")
		m, err := New(Options{store: store, Allocator: a, LaunchTimeout: time.Hour, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close(context.Background()) }()
		store.At(store.Commits(), 1000, catalogtest.Full)
		if _, err := (service{m: m}).Allocate(t.Context(), connect.NewRequest(&managerv1.AllocateRequest{
			RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20,
		})); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Fatalf("Allocate on a full catalog: %v", err)
		}
		store.At(store.Commits(), 1000, 0)
		<-a.silent
		time.Sleep(2 * forgotten)
		if caches, vms := m.led().state.size(); caches+vms != 0 {
			t.Errorf("%d caches and %d VMs are left", caches, vms)
		}
	})
}

// terminating is a scripted allocator that notes the VMs that it terminates.
type terminating struct {
	*scripted
	ended chan string // buffered
}

func (a terminating) Terminate(_ context.Context, id, _ string) error {
	a.ended <- id
	return nil
}

// A VM is not terminated before it is written that its cache has ended: another leader may begin
// meanwhile, for which the cache goes on. The VM's step is one that was put off until it had to be
// registered.
func TestUnwrittenEndTerminatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := catalogtest.NewFaulty(catalog.NewMemory())
		a := terminating{newScripted(t, 64<<20), make(chan string, 10)}
		a.expect("silent")
		m, err := New(Options{store: store, Allocator: a, LaunchTimeout: time.Minute, Lease: -1, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close(context.Background()) }()
		go func() {
			<-a.silent
			lent, _ := m.led().state.launchedIDs()
			if err := a.host.Register(testVM(lent[0], 1<<20, 1, "http://127.0.0.1:1")); err != nil {
				t.Error(err)
			}
		}()
		calls := service{m: m}
		allocated, err := calls.Allocate(t.Context(), connect.NewRequest(&managerv1.AllocateRequest{
			RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20,
		}))
		if err != nil {
			t.Fatal(err)
		}
		store.At(store.Commits(), 1000, catalogtest.Full)
		if _, err := calls.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{
			CacheId: allocated.Msg.GetCacheId(),
		})); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Fatalf("Deallocate on a full catalog: %v", err)
		}
		time.Sleep(2 * time.Minute)
		select {
		case id := <-a.ended:
			t.Errorf("VM %s is terminated, and the catalog has its cache", id)
		default:
		}
		store.At(store.Commits(), 1000, 0)
		time.Sleep(time.Minute)
		if caches, vms := m.led().state.size(); caches+vms != 0 || len(a.ended) == 0 {
			t.Errorf("%d caches and %d VMs are left, %d VMs were terminated", caches, vms, len(a.ended))
		}
	})
}
