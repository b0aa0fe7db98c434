package redytier

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// The log shows where the memory of a cache goes, in order, whether or not the program sets
// OnEvent.
func TestEventsAreLogged(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	w := newWatcher(&Cache{log: log})
	w.running.Go(func() { w.deliver(nil) })
	w.report(Event{Kind: VMReclaimed, VM: "vm-1", To: 4096, Deadline: time.Unix(0, 0).UTC()})
	w.report(Event{Kind: VMLeft, VM: "vm-1", To: 4096})
	w.report(Event{Kind: VMLost, VM: "vm-2", To: 4096})
	w.report(Event{Kind: Restored, VM: "vm-3", From: 4096, To: 8192, DataLost: true})
	w.report(Event{Kind: CacheDeleted, To: 8192})
	w.stop()
	w.report(Event{Kind: VMLeft, VM: "vm-9"}) // after stop, nothing is delivered
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	want := []string{
		`level=INFO msg="VM is reclaimed: its regions move" from=0 to=4096 vm=vm-1 deadline=1970-01-01T00:00:00.000Z`,
		`level=INFO msg="regions have moved away from a VM" from=0 to=4096 vm=vm-1`,
		`level=INFO msg="regions have memory again" from=4096 to=8192 zeros=true`,
		`level=WARN msg="the manager does not know the cache"`,
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), text.String())
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, want[i]) {
			t.Errorf("line %q, want %q", line, want[i])
		}
	}
}

// A watcher handles each event once, over all streams, and takes missed events from a message
// with the state.
func TestEventsOnce(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	events := make(chan Event, 64)
	cache := c.create(t, Config{
		Capacity: 1 << 17, RegionSize: 1 << 16, Configuration: oneSided, OnEvent: func(e Event) { events <- e },
	})
	h := &streamState{notices: map[string]bool{}}
	hear := func(m *managerv1.WatchResponse, want uint64) {
		t.Helper()
		if cache.watcher.receive(m, h); h.sequence != want {
			t.Errorf("at %d, want %d", h.sequence, want)
		}
	}
	const deadline = 1 << 40
	leaving := &managerv1.WatchResponse{Sequence: 1, Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: "vm-0", DeadlineUnixMs: deadline, LeftMs: 1}
	hear(leaving, 1)
	hear(leaving, 1)
	hear(&managerv1.WatchResponse{
		Sequence: 7, Kind: managerv1.WatchResponse_KIND_STATE, State: &managerv1.Cache{Grants: []*managerv1.Grant{
			{Vm: &managerv1.Vm{Id: "vm-0", Healthy: true, Leaving: true, DeadlineUnixMs: deadline, LeftMs: 1}},
			{Vm: &managerv1.Vm{Id: "vm-1"}},
			{Vm: &managerv1.Vm{Id: "vm-2", Healthy: true}},
		}},
	}, 7)
	hear(&managerv1.WatchResponse{Sequence: 6, Kind: managerv1.WatchResponse_KIND_CACHE_DELETED}, 7)
	var reclaimed, lost int
	for reclaimed+lost < 2 {
		switch e := <-events; e.Kind {
		case VMReclaimed:
			reclaimed++
		case VMLost:
			lost++
		case CacheDeleted:
			t.Error("the cache was deleted before the state")
		}
	}
	if reclaimed != 1 || lost != 1 {
		t.Errorf("%d reclaimed and %d lost", reclaimed, lost)
	}
}

// A VM is left within its notice, even if the manager's clock differs.
func TestClocksDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{20 * time.Second, -20 * time.Second} { // of this clock relative to the manager's
		c := newCluster(t, "mem", 2, 1<<20)
		events := make(chan Event, 64)
		cache := c.create(t, Config{
			Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: oneSided, OnEvent: func(e Event) { events <- e },
		})
		from := cache.Regions()[0].VM
		const notice = 8 * time.Second
		begin := time.Now()
		c.events <- &managerv1.WatchResponse{
			Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: from,
			DeadlineUnixMs: begin.Add(notice - ahead).UnixMilli(), LeftMs: notice.Milliseconds(),
		}
		if e := <-events; e.Kind != VMReclaimed || e.Deadline.Before(begin.Add(notice)) || e.Deadline.After(time.Now().Add(notice)) {
			t.Errorf("this clock is %v ahead: %+v, want a deadline %v after %v", ahead, e, notice, begin)
		}
		if e := <-events; e.Kind != VMLeft {
			t.Errorf("this clock is %v ahead: %+v, want that the VM is left", ahead, e)
		}
	}
}
