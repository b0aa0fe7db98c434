package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// crashStore is a store in memory that fails on request, which simulates a crash of its
// manager.
type crashStore struct {
	mu      sync.Mutex
	entries map[string][]byte
	left    int  // changes until the crash; 0: no crash
	kept    bool // the last change is stored
	crashed bool
}

var errCrash = errors.New("crash")

func (s *crashStore) Load(entry func(string, []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		if err := entry(key, s.entries[key]); err != nil {
			return err
		}
	}
	return nil
}

func (s *crashStore) Apply(changes map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left > 0 {
		s.left--
		s.crashed = s.left == 0
	}
	if !s.crashed || s.kept {
		for key, value := range changes {
			if value == nil {
				delete(s.entries, key)
			} else {
				s.entries[key] = value
			}
		}
	}
	if s.crashed {
		s.kept = false
		return errCrash
	}
	return nil
}

func (s *crashStore) Close() error { return nil }

// arm makes the n-th change from now fail.
func (s *crashStore) arm(n int, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.kept = n, kept
}

// Restore makes the world an allocator whose VMs outlive their manager.
func (w *world) Restore(_ context.Context, wanted []string) (running []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.vms {
		if slices.Contains(wanted, id) {
			running = append(running, id)
		} else {
			w.end(id)
		}
	}
	return running, nil
}

// restart closes the manager and starts another one from the first one's store.
func (w *world) restart(ctx context.Context, s *crashStore) (*crashStore, error) {
	_ = w.m.Close(ctx) // the store may have failed
	next := &crashStore{entries: s.entries}
	w.opts.store = next
	before := w.m.state.describe()
	w.start()
	if s.crashed {
		return next, nil
	}
	// A manager that was closed has stored everything; leases begin anew.
	if after := w.m.state.describe(); fmt.Sprint(after) != fmt.Sprint(before) {
		return next, fmt.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
	return next, nil
}

// recover does what a client does when it does not know the result of its last call: it
// settles for what it has, as far as the manager still has it.
func (r *random) recover(ctx context.Context) error {
	s := service{m: r.world.m}
	known := make(map[string]*managerv1.Cache)
	for _, ca := range r.world.m.state.describe().GetCaches() {
		known[ca.GetId()] = ca
	}
	var still []*holding
	for _, h := range r.caches {
		ca := known[h.id]
		if ca == nil {
			continue
		}
		req := &managerv1.SettleRequest{CacheId: h.id}
		var kept []granted
		for _, g := range grantedOf(ca.GetGrants()) {
			if slices.ContainsFunc(h.grants, func(mine granted) bool { return mine.grant == g.grant }) {
				kept = append(kept, g)
				req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.grant, Regions: g.regions})
				req.Capacity += uint64(g.regions) * randomRegion
			}
		}
		if len(kept) == 0 {
			continue
		}
		if _, err := s.Settle(ctx, connect.NewRequest(req)); err != nil {
			return fmt.Errorf("settle again: %w", err)
		}
		h.capacity, h.grants, h.pending, h.renewed = req.Capacity, kept, nil, r.world.clock.read()
		still = append(still, h)
		delete(known, h.id)
	}
	r.caches = still
	for id := range known { // an allocation that was not answered; its lease would end
		if _, err := s.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id})); err != nil {
			return err
		}
	}
	return nil
}

// Managers end at any change of their catalog, before or after it is stored, and others
// start from what is stored.
func TestRandomCrashes(t *testing.T) {
	w, rs := newWorld(t, 1)
	ctx := testContext(t)
	r := rs[0]
	s := &crashStore{entries: make(map[string][]byte)}
	w.opts.store = s
	if err := w.m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	w.start()
	crashes := 0
	for i := range 4000 {
		if r.rng.IntN(10) == 0 {
			s.arm(1+r.rng.IntN(4), r.rng.IntN(2) == 0)
		}
		err := r.step(ctx)
		if s.crashed || r.rng.IntN(20) == 0 {
			if s.crashed {
				crashes++
			} else if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			crashed := s.crashed
			if s, err = w.restart(ctx, s); err == nil && crashed {
				err = r.recover(ctx)
			}
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if w.check(t); t.Failed() {
			t.Fatalf("after step %d", i)
		}
	}
	if crashes < 100 {
		t.Errorf("only %d crashes", crashes)
	}
	s.arm(0, false)
	w.finish(t, rs)

	// Grants that servers have and no cache has are found once the servers have registered
	// again.
	for range 3 {
		for id := range 2 {
			vm := testVM(fmt.Sprintf("pool-%d", id), 8<<20, 2, w.control(fmt.Sprintf("pool-%d", id)))
			if err := w.m.state.register(vm, "", w.clock.read().Add(24*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		w.m.expire(w.clock.advance(6 * time.Hour))
	}
	if len(w.lent) != 0 || len(w.vms) != 0 {
		t.Errorf("still lent: %v; running: %v", w.lent, w.vms)
	}
}

// A client that was told a lease by an earlier manager renews by that until it is told
// another one. A client that was told there is none does not renew.
func TestLeaseAfterRestart(t *testing.T) {
	const none = -1
	for _, c := range []struct{ told, now, lasts time.Duration }{
		{time.Minute, time.Minute, time.Minute},
		{time.Minute, time.Second, time.Minute},
		{time.Second, time.Minute, time.Minute},
		{none, time.Minute, none},
		{time.Minute, none, none},
	} {
		t.Run(fmt.Sprintf("%v, %v", c.told, c.now), func(t *testing.T) {
			ctx := testContext(t)
			w, _ := newWorld(t, 0)
			if err := w.m.Close(ctx); err != nil {
				t.Fatal(err)
			}
			s := &crashStore{entries: make(map[string][]byte)}
			w.opts.store, w.opts.Lease = s, c.told
			w.start()
			a, err := service{m: w.m}.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{Capacity: 2 << 20, RegionSize: 1 << 20}))
			if err != nil {
				t.Fatal(err)
			}
			id := a.Msg.GetCacheId()
			w.opts.Lease = c.now
			for range 2 { // the client has not been told the lease in between
				if s, err = w.restart(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
			lives := func(lasts time.Duration) {
				t.Helper()
				if lasts == none {
					lasts = 1e6 * time.Hour
				}
				w.m.expire(w.clock.advance(lasts))
				if !slices.ContainsFunc(w.m.state.describe().GetCaches(), func(c *managerv1.Cache) bool { return c.GetId() == id }) {
					t.Fatalf("the cache ended within %v", lasts)
				}
			}
			lives(c.lasts)
			if _, err := (service{m: w.m}).Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: id})); err != nil {
				t.Fatal(err)
			}
			lives(c.now)
			if _, err = w.restart(ctx, s); err != nil {
				t.Fatal(err)
			}
			lives(c.now)
			if c.now == none {
				return
			}
			w.m.expire(w.clock.advance(1))
			if all := w.m.state.describe().GetCaches(); len(all) > 0 {
				t.Errorf("not renewed for %v and longer: %v", c.now, all)
			}
		})
	}
}

// A manager whose catalog cannot be written ends and changes nothing any more. The next one
// has everything that was answered.
func TestStoreFails(t *testing.T) {
	a := newScripted(t, 64<<20)
	s := &crashStore{entries: make(map[string][]byte)}
	opts := Options{Allocator: a, Heartbeat: 1e9, Lease: -1, Logger: quiet(), store: s}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	calls := service{m: m}
	first, err := calls.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{Capacity: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	s.arm(1, false)
	deallocate := connect.NewRequest(&managerv1.DeallocateRequest{CacheId: first.Msg.GetCacheId()})
	for range 2 {
		if _, err := calls.Deallocate(testContext(t), deallocate); connect.CodeOf(err) != connect.CodeUnavailable || !errors.Is(err, errCrash) {
			t.Errorf("error %v", err)
		}
	}
	if room := a.Room(); room != 63<<20 {
		t.Errorf("%d of 64 MiB are free, want the VM to run whose cache could not be deallocated", room)
	}
	_ = m.Close(testContext(t))
	if _, ok := s.entries["cache/"+first.Msg.GetCacheId()]; !ok {
		t.Error("the cache is forgotten")
	}
}
