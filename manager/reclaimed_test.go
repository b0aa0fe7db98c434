package manager

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
)

// A reclaimed server gets no grants until its deadline has passed and it has registered
// again. That holds for the same process, for a restarted one, and after a restart of the
// manager.
func TestReclaimedStays(t *testing.T) {
	clock := &handClock{now: time.Unix(1_000_000, 0)}
	store := newCrashStore()
	opts := Options{Transport: "tcp", Heartbeat: time.Hour, Silence: 24 * time.Hour, Lease: -1, now: clock.read, store: store, Logger: quiet()}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	server := testVM("server", 1<<20, 0, "http://127.0.0.1:1")
	register := func() {
		t.Helper()
		if err := m.led().state.register(server, "", clock.read().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	lent := func() bool {
		t.Helper()
		r, err := m.led().allocate(testContext(t), &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20})
		if _, full := errors.AsType[*api.CapacityError](err); err != nil && !full {
			t.Fatal(err)
		}
		if err == nil {
			// The server does not answer, and fails.
			_, err = service{m: m}.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: r.GetCacheId()}))
		}
		return err == nil
	}
	register()
	if _, err := m.led().reclaim("server", 0, clock.read().Add(time.Hour), "maintenance"); err != nil {
		t.Fatal(err)
	}
	register()
	if lent() {
		t.Error("lent although it is reclaimed")
	}
	server.Start++
	register()
	if lent() {
		t.Error("lent after it was started again")
	}
	if err := m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if m, err = New(opts); err != nil {
		t.Fatal(err)
	}
	register()
	if lent() {
		t.Error("lent by the next manager")
	}
	m.led().expireAt(clock.advance(time.Hour))
	if lent() {
		t.Error("lent after its deadline, without a word of it")
	}
	register()
	if !lent() {
		t.Error("not lent although it is there again")
	}
	if err := m.Close(testContext(t)); err != nil {
		t.Error(err)
	}
}

// A leader whose clock is behind that of an earlier one gives a reclaimed VM no more than its
// notice.
func TestReclaimByAnotherClock(t *testing.T) {
	clock := &handClock{now: time.Unix(1_000_000, 0)}
	store := newCrashStore()
	m, _ := serve(t, Options{Transport: "tcp", store: store, Moved: true, now: clock.read})
	if err := m.led().state.register(testVM("server", 1<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	const notice = time.Hour
	if _, err := m.led().reclaim("server", 0, clock.read().Add(notice), "maintenance"); err != nil {
		t.Fatal(err)
	}
	// A leader with a slow clock, and the next one of the same clock when half of the notice has passed.
	slow := &handClock{now: clock.read().Add(-24 * time.Hour)}
	later := store.next()
	for i, want := range []time.Duration{notice, notice / 2} {
		next, _ := serve(t, Options{Transport: "tcp", store: later, Moved: true, now: slow.read})
		at, ok := next.led().state.nextLeave()
		if left := at.Sub(slow.read()); !ok || left != want {
			t.Errorf("leader %d with a slow clock: %v are left, want %v", i, left, want)
		}
		slow.advance(notice / 2)
		later = later.next()
	}
	for _, tc := range []struct {
		ahead, left time.Duration // of the next leader's clock
	}{{0, notice}, {20 * time.Minute, notice - 20*time.Minute}, {-24 * time.Hour, notice}} {
		other := &handClock{now: clock.read().Add(tc.ahead)}
		next, _ := serve(t, Options{Transport: "tcp", store: store.next(), Moved: true, now: other.read})
		at, ok := next.led().state.nextLeave()
		if left := at.Sub(other.read()); !ok || left != tc.left {
			t.Errorf("a clock that is %v ahead: %v are left, want %v", tc.ahead, left, tc.left)
		}
	}
}
