package manager

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
)

// A second manager that starts from a copy of the state takes nothing back from a server
// that obeys the first one: neither grants that the first has given since, by its audit,
// nor grants that both know, when its leases end.
func TestManagersOnCopies(t *testing.T) {
	const silence, lease = 24 * time.Hour, 25 * time.Hour
	begin := func(s *crashStore, clock *handClock) (*Manager, access.Client) {
		return serve(t, Options{
			Transport: "mem", Heartbeat: time.Millisecond, Silence: silence, Lease: lease, Moved: true, store: s, now: clock.read,
		})
	}
	state := newCrashStore()
	first, client := begin(state, &handClock{now: time.Unix(1e9, 0)})
	n := startNode(t, "node")
	await(t, announce(t, n, client), "registration")
	allocate := func() *managerv1.AllocateResponse {
		t.Helper()
		ca, err := allocateBytes(t, client, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	both := allocate()
	giveBoth := borrow(t, n, both)
	copied := state.next()
	later := &handClock{now: time.Unix(1e9, 0)} // of the second manager only
	second, _ := begin(copied, later)
	if second.led().self.Epoch <= first.led().self.Epoch {
		t.Fatalf("epochs %d and %d", first.led().self.Epoch, second.led().self.Epoch)
	}
	mine := allocate()
	giveMine := borrow(t, n, mine)

	lent := func(when string) {
		t.Helper()
		if free := n.VM().Free; free != 6<<20 {
			t.Fatalf("%s: %d bytes free, want 6 MiB", when, free)
		}
	}
	for range 4 {
		second.led().auditAt(later.advance(lease))
	}
	lent("after its audits")
	second.led().state.mu.Lock()
	second.led().state.vms["node"].called = true // as if the server had called it
	second.led().state.mu.Unlock()
	for range 4 {
		second.led().auditAt(later.advance(lease))
	}
	lent("after audits of what it thinks is its server")
	second.led().expireAt(later.advance(2 * lease))
	if second.Metrics().Caches != 0 {
		t.Fatal("the second manager's lease of the cache has not ended")
	}
	lent("after its leases ended")

	// The server obeys the first manager.
	giveMine()
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: mine.GetCacheId()})); err != nil {
		t.Error(err)
	}
	if _, err := first.led().grantsOf(t.Context(), n.VM()); err != nil {
		t.Error(err)
	}
	giveBoth()
}

// A server that has obeyed a manager obeys none of an older epoch, however silent the newer
// one is: neither a leader that was stopped for long, nor a manager without the earlier
// catalog on a machine whose clock was set back. A server that is started again obeys it.
func TestManagerOfAnOlderEpoch(t *testing.T) {
	newer, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Millisecond, Lease: -1})
	older, late := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour})
	older.led().self.Epoch = newer.led().self.Epoch - 1
	n := startNode(t, "node")
	if _, err := n.Register(testContext(t), client); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := n.Register(testContext(t), late); err == nil || !strings.Contains(err.Error(), "obeys none before it") {
			t.Errorf("the older manager is obeyed: %v", err)
		}
		if _, err := older.led().grantsOf(t.Context(), n.VM()); connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("the older manager is obeyed: %v", err)
		}
	}
	if _, err := newer.led().grantsOf(t.Context(), n.VM()); err != nil {
		t.Error(err)
	}
	again := startNode(t, "again")
	if _, err := again.Register(testContext(t), late); err != nil {
		t.Error(err)
	}
}

// Each run of a manager on one state has a higher epoch, whatever the clock shows.
func TestEpochsRise(t *testing.T) {
	state := newCrashStore()
	last := uint64(0)
	for range 3 {
		m, _ := serve(t, Options{Transport: "mem", store: state, Moved: true})
		if m.led().self.Epoch <= last {
			t.Fatalf("epoch %d after %d", m.led().self.Epoch, last)
		}
		last = m.led().self.Epoch + 1<<40 // as if the clock had been ahead
		state = state.next()
		state.put("epoch", binary.BigEndian.AppendUint64(nil, last))
	}
}
