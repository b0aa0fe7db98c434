package allocator_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// Rack is an allocator as another module could have it. It launches VMs in the background: each
// waits until the rack has power.
type Rack struct {
	Power chan struct{} // closed when there is power

	host    allocator.Host
	working sync.WaitGroup
	mu      sync.Mutex // guards vms
	vms     map[string]*node.Node
}

func (r *Rack) Transport() string       { return "mem" }
func (r *Rack) Attach(h allocator.Host) { r.host = h }

func (r *Rack) Offers(context.Context, string, string) ([]plan.Offer, error) {
	return []plan.Offer{{Type: "blade", Memory: 1 << 30, Cores: 1, Price: plan.Dollars(0.05), Available: 8}}, nil
}

func (r *Rack) Launch(_ context.Context, spec allocator.VMSpec) error {
	r.host.Waiting(spec.ID, "the rack has no power")
	r.working.Go(func() {
		<-r.Power
		r.host.Waiting(spec.ID, "")
		r.host.Placed(spec.ID, allocator.Place{Machine: "rack", Name: "slot 1", Distance: 2})
		if err := r.start(spec); err != nil {
			r.host.Failed(spec.ID, err.Error())
		}
	})
	return nil
}

func (r *Rack) start(spec allocator.VMSpec) error {
	n, err := node.Start(node.Options{ID: spec.ID, Memory: spec.Memory, Cores: spec.Cores, Transport: spec.Transport, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.vms[spec.ID] = n
	r.mu.Unlock()
	return r.host.Register(n.VM())
}

func (r *Rack) Terminate(_ context.Context, id, _ string) error {
	r.mu.Lock()
	n := r.vms[id]
	delete(r.vms, id)
	r.mu.Unlock()
	if n == nil {
		return nil
	}
	return n.Close()
}

func (r *Rack) Close() error {
	r.working.Wait()
	for id := range r.vms {
		_ = r.Terminate(context.Background(), id, "")
	}
	return nil
}

// An allocator that is written outside this module. A client waits for its VM, and is told why.
func ExampleAllocator() {
	ctx := context.Background()
	rack := &Rack{Power: make(chan struct{}), vms: make(map[string]*node.Node)}
	m, err := manager.Embed(ctx, manager.EmbedOptions{Allocator: rack, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = m.Close() }()
	want := &managerv1.AllocateRequest{Capacity: 1 << 30, RequestId: "0123456789abcdef", WaitMs: 50}
	waits := regexp.MustCompile("waits: (.*),")
	for powered := false; ; {
		got, err := m.Allocate(ctx, connect.NewRequest(want))
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case len(got.Msg.GetPending()) == 0:
			vm := got.Msg.GetGrants()[0].GetVm()
			fmt.Println(vm.GetType(), "at distance", vm.GetDistance())
			return
		}
		if why := waits.FindStringSubmatch(got.Msg.GetPending()[0]); why != nil && !powered {
			fmt.Println("it waits:", why[1])
			powered = true
			close(rack.Power)
		}
	}
	// Output:
	// it waits: the rack has no power
	// blade at distance 2
}
