package manager

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/plan"
)

// crowded is an allocator with room for four VMs. Those that do not fit wait. A cache has at most
// two until there is room for the ones that wait.
type crowded struct {
	*allocator.InProcess
	host allocator.Host

	mu      sync.Mutex        // guards the fields below
	runs    map[string]string // caches of the VMs that run, by VM
	waiting []allocator.VMSpec
}

func (a *crowded) Attach(h allocator.Host) {
	a.host = h
	a.InProcess.Attach(h)
}

func (a *crowded) Offers(context.Context, string, string) ([]plan.Offer, error) {
	return []plan.Offer{{Type: "pod", Memory: 1 << 20, Cores: 4, Distance: 1, Price: 10, Available: -1}}, nil
}

func (a *crowded) Launch(ctx context.Context, spec allocator.VMSpec) error {
	a.mu.Lock()
	same := 0
	for _, cache := range a.runs {
		if cache == spec.Cache {
			same++
		}
	}
	if same == 2 || len(a.runs) == 4 {
		a.waiting = append(a.waiting, spec)
		a.mu.Unlock()
		a.host.Waiting(spec.ID, "no room")
		return nil
	}
	a.runs[spec.ID] = spec.Cache
	a.mu.Unlock()
	return a.InProcess.Launch(ctx, spec)
}

func (a *crowded) Terminate(ctx context.Context, id, why string) error {
	err := a.InProcess.Terminate(ctx, id, why)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, id)
	for i, spec := range a.waiting {
		if spec.ID == id {
			a.waiting = append(a.waiting[:i:i], a.waiting[i+1:]...)
			break
		}
	}
	for len(a.runs) < 4 && len(a.waiting) > 0 {
		next := a.waiting[0]
		a.waiting, a.runs[next.ID] = a.waiting[1:], next.Cache
		err = errors.Join(err, a.InProcess.Launch(ctx, next))
	}
	return err
}

// Two requests for three VMs each hold two of the four for which there is room. The younger one
// gives way after a while, and not earlier; the older one gets its third VM. Then others may have
// the kind again.
func TestYoungerRequestGivesWay(t *testing.T) {
	inner, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	a := &crowded{InProcess: inner, runs: make(map[string]string)}
	c := &handClock{now: time.Unix(1_000_000, 0)}
	const after = 10 * time.Minute
	m, client := serve(t, Options{Allocator: a, GiveWay: after, now: c.read})
	type answer struct {
		grants int
		err    error
	}
	allocate := func() <-chan answer {
		answers := make(chan answer, 1)
		go func() {
			r, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{
				RequestId: newRequestID(), Capacity: 3 << 20, RegionSize: 1 << 20,
			}))
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{grants: len(r.Msg.GetGrants())}
		}()
		return answers
	}
	stuck := func(waiting int) {
		t.Helper()
		testrun.Until(t, "the requests hold what they get", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			m.led().state.mu.Lock()
			defer m.led().state.mu.Unlock()
			up := 0
			for _, v := range m.led().state.vms {
				if v.ControlURL != "" {
					up++
				}
			}
			return len(a.waiting) == waiting && up == 2*waiting
		})
		m.led().rest(t)
	}
	available := func() int32 {
		t.Helper()
		r, err := client.ListOffers(testContext(t), connect.NewRequest(&managerv1.ListOffersRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg.GetOffers()[0].GetAvailable()
	}
	older := allocate()
	stuck(1)
	younger := allocate()
	stuck(2)
	m.led().expireAt(c.advance(after - time.Second))
	if caches, _ := m.led().state.size(); caches != 2 {
		t.Fatalf("%d requests are left before their time", caches)
	}
	m.led().expireAt(c.advance(time.Second))
	if got := testrun.Receive(t, "the younger request ends", younger); connect.CodeOf(got.err) != connect.CodeResourceExhausted || !strings.Contains(got.err.Error(), "caches wait for it") {
		t.Errorf("the younger request: %+v", got)
	}
	if got := testrun.Receive(t, "the older request ends", older); got.err != nil || got.grants != 3 {
		t.Errorf("the older request: %+v", got)
	}
	if n := available(); n != 0 {
		t.Errorf("%d VMs are offered at once", n)
	}
	c.advance(soldOutFor + time.Second)
	if n := available(); n != -1 {
		t.Errorf("%d VMs are offered later", n)
	}
	// One request alone waits for as long as it takes.
	alone := allocate()
	testrun.Until(t, "it waits", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.waiting) > 0 })
	m.led().rest(t)
	m.led().expireAt(c.advance(2 * after))
	select {
	case got := <-alone:
		t.Errorf("a request alone: %+v", got)
	default:
	}
	if caches, _ := m.led().state.size(); caches != 2 {
		t.Errorf("%d caches, want the older one and the one that waits", caches)
	}
}
