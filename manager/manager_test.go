package manager

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/catalog"
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
		t.Log(err) // the connection may be gone
	}
	if _, err := (service{m: m}).Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("allocation afterwards: %v", err)
	}
	if a.used() != 0 {
		t.Errorf("%d bytes are in use", a.used())
	}
}

// A manager that closes during the launch of a VM terminates the VM.
func TestCloseDuringAllocate(t *testing.T) {
	a := newScripted(t, 64<<20)
	a.expect("ok", "silent")
	m, _ := serve(t, Options{Allocator: a, VMMemory: 1 << 20})
	failed := make(chan error)
	go func() {
		_, err := service{m: m}.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 2 << 20, RegionSize: 1 << 20}))
		failed <- err
	}()
	testrun.Receive(t, "the VM is launched", a.silent)
	if err := m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "Allocate ends", failed); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("error %v", err)
	}
	if a.used() != 0 {
		t.Errorf("%d bytes are in use", a.used())
	}
}

// An Allocate whose caller is gone leaves no cache, as it would never be deallocated.
func TestAllocateForNobody(t *testing.T) {
	a := newScripted(t, 64<<20)
	m, _ := serve(t, Options{Allocator: a})
	ctx, leave := context.WithCancel(testContext(t))
	leave()
	_, err := service{m: m}.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1}))
	if connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("error %v", err)
	}
	if d := m.led().state.describe(); len(d.GetCaches())+len(d.GetVms()) != 0 || a.used() != 0 {
		t.Errorf("left over: %v, %d bytes", d, a.used())
	}
}

// Calls that arrive after the manager has closed, as those on a broken connection may, are
// refused without a write to the store.
func TestCallsAfterClose(t *testing.T) {
	m, err := New(Options{Transport: "tcp", State: t.TempDir(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	api, ctx := service{m: m}, testContext(t)
	vm := connect.NewRequest(&managerv1.RegisterRequest{Vm: testVM("a", 1<<20, 1, "http://127.0.0.1:1").Proto(true)})
	if _, err := api.Register(ctx, vm); err != nil {
		t.Fatal(err)
	}
	ca, err := api.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	id := ca.Msg.GetCacheId()
	for name, call := range map[string]func() error{
		"Register": func() error { _, err := api.Register(ctx, vm); return err },
		"Heartbeat": func() error {
			_, err := api.Heartbeat(ctx, connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "a", Start: 1}))
			return err
		},
		"Reclaim": func() error {
			_, err := api.Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: "a"}))
			return err
		},
		"Renew": func() error {
			_, err := api.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: id}))
			return err
		},
		"Deallocate": func() error {
			_, err := api.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id}))
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// badRestorer is an allocator that fails to take over the VMs of an earlier process, and
// reports a VM's end later.
type badRestorer struct {
	*scripted
	host allocator.Host
}

func (b *badRestorer) Attach(h allocator.Host) {
	b.host = h
	b.scripted.Attach(h)
}

var _, _ allocator.Restorer = (*badRestorer)(nil), (*moody)(nil)

func (b *badRestorer) Restore(context.Context, uint64, []string, []string) ([]string, error) {
	return nil, errors.New("no VM can be taken up")
}

// An allocator's reports are ignored if its manager could not start.
func TestNewFails(t *testing.T) {
	state := t.TempDir()
	m, err := New(Options{Transport: "tcp", State: state, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.led().state.register(testVM("a", 1<<20, 1, "http://127.0.0.1:1"), "", m.led().nextBeat()); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	a := &badRestorer{scripted: newScripted(t, 1<<20)}
	if _, err := New(Options{Allocator: a, State: state, Logger: quiet()}); err == nil {
		t.Fatal("started")
	}
	a.host.Failed("a", "killed")
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if m, err = New(Options{Transport: "tcp", State: state, Logger: quiet()}); err != nil {
		t.Fatal(err)
	}
	if m.led().state.up("a") == nil {
		t.Error("the VM is gone")
	}
	if err := m.Close(testContext(t)); err != nil {
		t.Error(err)
	}
}

// moody is an allocator that fails to take over the VMs of an earlier process for a while.
type moody struct {
	*scripted
	fails atomic.Int64
}

func (a *moody) Restore(_ context.Context, _ uint64, lent, idle []string) ([]string, error) {
	if a.fails.Add(-1) >= 0 {
		return nil, errors.New("the cloud is away")
	}
	return slices.Concat(lent, idle), nil
}

// A manager that is elected while its allocator is away leads when that is back.
func TestAllocatorAwayAtElection(t *testing.T) {
	a := &moody{scripted: newScripted(t, 1<<20)}
	a.fails.Store(2)
	store := catalog.NewMemory()
	other := store.Join() // so that the store is shared
	defer func() { _ = other.Close() }()
	m, client := serve(t, Options{Allocator: a, store: store})
	awaitLeader(t, []*Manager{m})
	for ctx := testContext(t); ; { // a leader that its allocator fails stands by again
		_, err := allocateBytes(t, client, 1<<20)
		if err == nil {
			break
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || !clock.Sleep(ctx, 10*time.Millisecond) {
			t.Fatal(err)
		}
	}
	if left := a.fails.Load(); left >= 0 {
		t.Errorf("%d failures are left", left+1)
	}
}
