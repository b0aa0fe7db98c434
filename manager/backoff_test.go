package manager

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// broken is an allocator whose launches fail.
type broken struct {
	deaf

	launches atomic.Int32
	full     atomic.Bool
	starts   atomic.Bool // launches succeed, and their VMs are silent
}

func (b *broken) Launch(_ context.Context, spec allocator.VMSpec) error {
	b.launches.Add(1)
	switch {
	case b.starts.Load():
		return nil
	case b.full.Load():
		return &api.CapacityError{What: "broken allocator", Asked: spec.Memory}
	}
	return errors.New("no such image")
}

func (b *broken) Restore(context.Context, uint64, []string, []string) ([]string, error) {
	return nil, nil
}

// hangs is an allocator of which all launches hang but the first.
type hangs struct {
	broken

	first atomic.Pointer[allocator.VMSpec]
}

func (h *hangs) Launch(ctx context.Context, spec allocator.VMSpec) error {
	if h.launches.Add(1) == 1 {
		h.first.Store(&spec)
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// A request whose VM comes up is granted while as many launches hang as are made at a time.
func TestHangingLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(hangs)
		m, err := New(Options{Allocator: a, Lease: -1, Heartbeat: time.Hour, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close(context.Background()) }()
		ctx, cancel := context.WithCancel(t.Context())
		var asked sync.WaitGroup
		defer asked.Wait()
		defer cancel()
		allocate := func() chan error {
			answer := make(chan error, 1)
			asked.Go(func() {
				_, err := service{m: m}.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20}))
				answer <- err
			})
			synctest.Wait()
			return answer
		}
		first := allocate()
		for range reconcilers + 1 {
			allocate()
		}
		if n := a.launches.Load(); n != 1+reconcilers {
			t.Fatalf("%d launches, want %d", n, 1+reconcilers)
		}
		info := node.VM{ID: a.first.Load().ID, ControlURL: "http://a", Transport: "tcp", Memory: 64 << 20, Free: 64 << 20, Start: 1}
		if err := m.led().state.register(info, "", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-first:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the request waits for launches of others")
		}
	})
}

// A kind of which no VM comes up is launched less and less often, and as before when one has.
func TestLaunchesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(broken)
		m, err := New(Options{Allocator: a, Lease: -1, Heartbeat: time.Hour, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close(context.Background()) }()
		allocate := func() error {
			_, err := service{m: m}.Allocate(t.Context(), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20}))
			return err
		}
		// fails asks for a cache, which fails, and checks that a VM is launched for it or not.
		fails := func(launches int32) {
			t.Helper()
			before := a.launches.Load()
			if err := allocate(); err == nil {
				t.Fatal("a cache without a VM")
			}
			if n := a.launches.Load() - before; n != launches {
				t.Errorf("%d launches, want %d", n, launches)
			}
		}
		// A full allocator is asked each time.
		a.full.Store(true)
		for range 2 * backoffFree {
			fails(1)
			time.Sleep(time.Millisecond)
		}
		a.full.Store(false)
		for range backoffFree {
			fails(1)
			time.Sleep(time.Millisecond)
		}
		for pause := firstBackoff; pause < 2*maxBackoff; pause *= 2 {
			fails(0)
			offers, err := service{m: m}.ListOffers(t.Context(), connect.NewRequest(&managerv1.ListOffersRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			if o := offers.Msg.GetOffers()[0]; o.GetAvailable() != 0 || !strings.Contains(o.GetNote(), "no such image") {
				t.Errorf("offer %v", o)
			}
			time.Sleep(min(pause, maxBackoff) - 10*time.Millisecond)
			fails(0)
			time.Sleep(20 * time.Millisecond)
			fails(1)
		}
		// While one is launched, others wait for how that ends.
		a.starts.Store(true)
		time.Sleep(maxBackoff)
		asked := make(chan error, 1)
		go func() { asked <- allocate() }()
		synctest.Wait()
		fails(0)
		l := m.led()
		launched, _ := l.state.launchedIDs()
		if len(launched) != 1 {
			t.Fatalf("VMs %q, want one", launched)
		}
		if err := l.state.register(node.VM{ID: launched[0], ControlURL: "http://a", Transport: "tcp", Memory: 64 << 20, Free: 64 << 20, Start: 1}, "", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err != nil {
			t.Error(err)
		}
		a.starts.Store(false)
		for range backoffFree {
			fails(1)
			time.Sleep(time.Millisecond)
		}
		fails(0)
	})
}
