package manager

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/model"
)

// A14: an SLO may apply to reads only; the slower writes do not count then.
func TestAllocateBySLOOfReads(t *testing.T) {
	m := model.New(model.Provenance{Transport: "mem", Network: model.NoNetwork, Host: model.ThisHost(), Revision: "test"})
	n, err := m.Add(&model.Measurement{RecordSize: 64, Distance: 1, Network: model.NoNetwork, ClientCores: 2, QueueDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	for at, ok := n.Next(); ok; at, ok = n.Next() {
		flight := float64(at.C * at.B * at.Q)
		read, write := model.Performance{LatencyUs: 4, Mops: flight / 4}, model.Performance{LatencyUs: 40, Mops: flight / 40}
		if err := n.Report(at, read, write); err != nil {
			t.Fatal(err)
		}
	}
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	_, client := serve(t, Options{Allocator: a, Models: []*model.Model{m}, SLOMargin: -1})
	for ops, want := range map[managerv1.Slo_Operations]string{
		managerv1.Slo_OPERATIONS_READS:       "",
		managerv1.Slo_OPERATIONS_WRITES:      "slo of writes: no configuration has a mean latency of 5 us",
		managerv1.Slo_OPERATIONS_UNSPECIFIED: "slo: no configuration has a mean latency of 5 us",
		7:                                    "slo: operations 7",
	} {
		asked := slo(5, 0, 64)
		asked.Operations = ops
		_, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: asked}))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("of %v: %v", ops, err)
		}
		if refused, ok := errors.AsType[*api.SLOError](err); ok && refused.Nearest.GetOperations() != ops {
			t.Errorf("of %v: the nearest is %v", ops, refused.Nearest)
		}
	}
}

// Concurrent plans, made without the catalog's lock, do not grant memory twice. Of twice as
// many caches as there is room for, half are allocated.
func TestNothingIsPromisedTwice(t *testing.T) {
	const servers, each = 4, 8
	m, client := serve(t, Options{Transport: "tcp"})
	for _, id := range []string{"a", "b", "c", "d"}[:servers] {
		if err := m.led().state.register(testVM(id, each<<20, 4, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	got := 0
	for range 2 * servers * each {
		all.Go(func() {
			_, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20}))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				got++
			} else if connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Error(err)
			}
		})
	}
	all.Wait()
	m.led().state.check(t)
	if got != servers*each {
		t.Errorf("%d caches, want %d", got, servers*each)
	}
}
