package redytier

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// A cache may have more than 256 VMs: two sessions read and write all of it, one VM is lost and
// replaced, and another is left.
func TestManyVMs(t *testing.T) {
	const vms, region = 300, 1 << 12
	c := newCluster(t, "mem", vms, 4*region)
	events := make(chan Event, 16)
	cache := c.create(t, Config{
		Capacity: vms * region, RegionSize: region, Configuration: configurations[0], reconnect: briefly,
		OnEvent: func(e Event) { events <- e },
	})
	if n := len(cache.table.Load().grants()); n != vms {
		t.Fatalf("%d grants, want %d", n, vms)
	}
	writer, reader := newPump(t, cache, 16), newPump(t, cache, 16)
	defer reader.close()
	defer writer.close()
	want := make([]byte, cache.Capacity())
	r := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(r.Uint32())
	}
	ok := func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	}
	same := func() {
		t.Helper()
		got := make([]byte, len(want))
		reader.do(false, got, 0, ok)
		reader.drain()
		if !bytes.Equal(got, want) {
			testrun.Wrong(t, "the cache has other bytes than were written")
		}
	}
	writer.do(true, want, 0, ok)
	writer.drain()
	same()

	last := span{(vms - 1) * region, vms * region}
	c.kill(vms - 1)
	for failed := false; !failed; {
		reader.do(false, make([]byte, 8), last.from, func(c device.Completion) { failed = c.Err != nil })
		reader.drain()
	}
	for _, kind := range []EventKind{VMLost, DataLost, Restored} {
		if e := testrun.Receive(t, "the next event", events); e.Kind != kind || e.From != last.from || e.To != last.to {
			t.Errorf("event %+v, want kind %v at %v", e, kind, last)
		}
	}
	writer.do(true, want[last.from:], last.from, ok)
	writer.drain()
	same()

	if err := cache.Migrate(t.Context(), "vm-280"); err != nil {
		t.Fatal(err)
	}
	for _, r := range cache.Regions() {
		if r.VM == "vm-280" {
			t.Errorf("a region is still on the VM that was left: %+v", r)
		}
	}
	same()
}
