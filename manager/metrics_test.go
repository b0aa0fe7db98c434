package manager

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// The metrics tell how much memory servers lend and have left, and how long calls and writes of the
// catalog take.
func TestMetricsOfMemoryAndTimes(t *testing.T) {
	m, client := serve(t, Options{Transport: "tcp"})
	for _, id := range []string{"a", "b"} {
		if err := m.led().state.register(testVM(id, 4<<20, 4, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	lends := func(free uint64) {
		t.Helper()
		if vms := m.Metrics().VMs; len(vms) != 1 || vms[0].VMs != 2 || vms[0].Memory != 8<<20 || vms[0].Free != free {
			t.Errorf("VMs %+v, want %d bytes free", vms, free)
		}
	}
	lends(8 << 20)
	ca, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 3 << 20, RegionSize: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	lends(5 << 20)
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.Msg.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	lends(5 << 20) // the servers, which do not answer, have not returned it
	now := m.Metrics()
	if now.Commits.Count == 0 || now.Commits.Sum <= 0 {
		t.Errorf("writes of the catalog: %+v", now.Commits)
	}
	for _, c := range now.Calls {
		want := uint64(0)
		if c.Procedure == "Allocate" || c.Procedure == "Deallocate" {
			want = 1
		}
		if c.Count != want || c.Procedure == "Watch" || c.Counts[len(c.Counts)-1] > c.Count {
			t.Errorf("%+v, want %d calls", c, want)
		}
	}
}

func TestDurations(t *testing.T) {
	d := newDurations([]time.Duration{0, 10, 20})
	for _, n := range []time.Duration{-5, 0, 1, 10, 11, 20, 21, 1000} {
		d.add(n)
	}
	all := d.get()
	if all.Count != 8 || all.Sum != 1058 || len(all.Counts) != 3 || all.Counts[0] != 2 || all.Counts[1] != 4 || all.Counts[2] != 6 {
		t.Errorf("%+v", all)
	}
}
