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
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/catalog"
)

// crashStore is a catalog in memory that fails on request, which simulates a crash of its
// manager.
type crashStore struct {
	mu      sync.Mutex
	entries map[string]catalog.Record
	left    int  // commits until the crash; 0: no crash
	kept    bool // the last commit is stored
	crashed bool
	commits int
}

var errCrash = errors.New("crash")

func newCrashStore() *crashStore { return &crashStore{entries: make(map[string]catalog.Record)} }

// next returns a catalog with a copy of the same records.
func (s *crashStore) next() *crashStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &crashStore{entries: maps.Clone(s.entries)}
}

func (s *crashStore) Campaign(context.Context, string) (catalog.Term, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return nil, errCrash
	}
	return crashTerm{s}, nil
}

func (s *crashStore) Leader() string { return "" }
func (s *crashStore) Shared() bool   { return false }
func (s *crashStore) Trouble() error { return nil }
func (s *crashStore) Close() error   { return nil }

// crashTerm is a term of a crashStore.
type crashTerm struct{ s *crashStore }

func (t crashTerm) Lost() <-chan struct{}        { return nil }
func (t crashTerm) Resign(context.Context) error { return nil }

func (t crashTerm) Load(_ context.Context, each func(catalog.Record) error) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(t.s.entries)) {
		if err := each(t.s.entries[key]); err != nil {
			return err
		}
	}
	return nil
}

func (t crashTerm) Commit(_ context.Context, changes []catalog.Change) error {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(changes) > 0 { // else it only confirms that the term goes on
		s.commits++
	}
	for _, c := range changes {
		if has := s.entries[c.Key].Version; has != c.Version {
			return fmt.Errorf("%w: %s has version %d, not %d", catalog.ErrConflict, c.Key, has, c.Version)
		}
	}
	if s.left > 0 && len(changes) > 0 {
		s.left--
		s.crashed = s.left == 0
	}
	if !s.crashed || s.kept {
		for _, c := range changes {
			if c.Value == nil {
				delete(s.entries, c.Key)
			} else {
				s.entries[c.Key] = catalog.Record{Key: c.Key, Value: c.Value, Version: c.Version + 1}
			}
		}
	}
	if s.crashed {
		s.kept = false
		return errCrash
	}
	return nil
}

func (s *crashStore) hasCrashed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crashed
}

// put changes a record.
func (s *crashStore) put(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[key] = catalog.Record{Key: key, Value: value, Version: s.entries[key].Version + 1}
}

// arm makes the n-th commit from now fail.
func (s *crashStore) arm(n int, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.kept = n, kept
}

var _ allocator.Restorer = (*world)(nil)

// Restore makes the world an allocator whose VMs outlive their manager.
func (w *world) Restore(_ context.Context, _ uint64, lent, idle []string) (running []string, err error) {
	wanted := slices.Concat(lent, idle)
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
	w.l.expireAt(w.clock.read()) // as the next manager does at once
	w.l.rest(w.t)
	before := w.l.state.describe()
	_ = w.m.Close(ctx) // the catalog may have failed
	next := s.next()
	w.opts.store = next
	w.start()
	if s.hasCrashed() {
		return next, nil
	}
	// A manager that was closed has stored everything; leases begin anew.
	if after := w.l.state.describe(); fmt.Sprint(after) != fmt.Sprint(before) {
		return next, fmt.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
	return next, nil
}

// recover does what a client does when it does not know the result of its last call: it
// settles for what it has, as far as the manager still has it.
func (r *random) recover(ctx context.Context) error {
	s := service{m: r.world.m}
	known := make(map[string]*managerv1.Cache)
	for _, ca := range r.world.l.state.describe().GetCaches() {
		known[ca.GetId()] = ca
	}
	var still []*holding
	for _, h := range r.caches {
		ca := known[h.id]
		if ca == nil {
			continue
		}
		h.change++
		req := &managerv1.SettleRequest{CacheId: h.id, Change: h.change}
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
	r := rs[0]
	s := newCrashStore()
	w.opts.store = s
	if err := w.m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	w.start()
	crashes := 0
	for i := range 4000 {
		ctx := testContext(t)
		if r.rng.IntN(10) == 0 {
			s.arm(1+r.rng.IntN(4), r.rng.IntN(2) == 0)
		}
		err := r.step(ctx)
		w.rest(t)
		if s.hasCrashed() || r.rng.IntN(20) == 0 {
			if s.hasCrashed() {
				crashes++
			} else if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			crashed := s.hasCrashed()
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
			s := newCrashStore()
			w.opts.store, w.opts.Lease = s, c.told
			w.start()
			a, err := service{m: w.m}.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 2 << 20, RegionSize: 1 << 20}))
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
				w.l.expireAt(w.clock.advance(lasts))
				if !slices.ContainsFunc(w.l.state.describe().GetCaches(), func(c *managerv1.Cache) bool { return c.GetId() == id }) {
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
			w.l.expireAt(w.clock.advance(1))
			if all := w.l.state.describe().GetCaches(); len(all) > 0 {
				t.Errorf("not renewed for %v and longer: %v", c.now, all)
			}
		})
	}
}

// A manager whose catalog cannot be written ends and changes nothing any more. The next one
// has everything that was answered.
func TestStoreFails(t *testing.T) {
	a := newScripted(t, 64<<20)
	s := newCrashStore()
	opts := Options{Allocator: a, Heartbeat: 1e9, Lease: -1, Logger: quiet(), store: s}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	calls := service{m: m}
	first, err := calls.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	s.arm(1, false)
	deallocate := connect.NewRequest(&managerv1.DeallocateRequest{CacheId: first.Msg.GetCacheId()})
	for range 2 {
		if _, err := calls.Deallocate(testContext(t), deallocate); connect.CodeOf(err) != connect.CodeUnavailable || !errors.Is(err, errCrash) {
			t.Errorf("error %v", err)
		}
		<-m.ctx.Done()
	}
	if room := a.Room(); room != 63<<20 {
		t.Errorf("%d of 64 MiB are free, want the VM to run whose cache could not be deallocated", room)
	}
	_ = m.Close(testContext(t))
	if _, ok := s.entries["cache/"+first.Msg.GetCacheId()]; !ok {
		t.Error("the cache is forgotten")
	}
}

// TestRecordsThatCannotBeWritten: a record that has no encoding is an error, and leaves the catalog readable.
func TestRecordsThatCannotBeWritten(t *testing.T) {
	store := newCrashStore()
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Second, Silence: time.Hour, store: store})
	n := startNode(t, "node")
	await(t, announce(t, n, client), "registration")
	state := m.led().state
	state.mu.Lock()
	v := state.vms["node"]
	state.mu.Unlock()
	v.registrant = "m\xfcller"
	if err := state.put(v); err == nil {
		t.Error("a name that is not UTF-8 was written")
	}
	again, _ := serve(t, Options{Transport: "mem", Heartbeat: time.Second, Silence: time.Hour, Moved: true, store: store.next()})
	if v, _ := again.led().state.registered("node"); v == nil && again.led().state.vms["node"] == nil {
		t.Error("the VM is not known any more")
	}
}
