package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/plan"
)

// kept starts a manager with a server that exists by name only, on a store and a clock.
func kept(t *testing.T, store *crashStore, clock *handClock, opts Options) (*Manager, access.Client) {
	t.Helper()
	opts.Transport, opts.store, opts.Moved, opts.now = "tcp", store, true, clock.read
	m, client := serve(t, opts)
	v := testVM("server", 64<<20, 0, "http://127.0.0.1:1")
	v.Price = plan.Dollars(1)
	if err := m.led().state.register(v, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	return m, client
}

// allocateKept allocates a cache of four regions that lingers.
func allocateKept(t *testing.T, client access.Client, linger time.Duration) *managerv1.AllocateResponse {
	t.Helper()
	r, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{
		RequestId: newRequestID(), Capacity: 4 << 20, RegionSize: 1 << 20, InOrder: true, LingerMs: linger.Milliseconds(),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

// heldBy checks that a call is refused because a cache has another holder.
func heldBy(t *testing.T, call string, err error, holder uint64) {
	t.Helper()
	of, ok := errors.AsType[*api.HolderError](api.Typed(err))
	if !ok || of.Holder != holder || connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("%s of a client that does not hold the cache: %v", call, err)
	}
}

// Each Attach makes its caller the holder. Calls of earlier holders are refused, repetitions have no
// further effect, and the next leader knows it all.
func TestHolder(t *testing.T) {
	ctx := testContext(t)
	store, clock := newCrashStore(), &handClock{now: time.Unix(1e9, 0)}
	m, client := kept(t, store, clock, Options{})
	ca := allocateKept(t, client, time.Hour)
	id := ca.GetCacheId()
	watch, err := client.Watch(ctx, connect.NewRequest(&managerv1.WatchRequest{CacheId: id, Holder: new(uint64(0))}))
	if err != nil {
		t.Fatal(err)
	}
	more, err := client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{CacheId: id, Change: 7, Regions: 2}))
	if err != nil {
		t.Fatal(err)
	}

	req := &managerv1.AttachRequest{CacheId: id, RequestId: newRequestID(), Capacity: 4 << 20}
	attached, err := client.Attach(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	a := attached.Msg
	if a.GetHolder() != 1 || a.GetChange() != 7 || a.GetCapacity() != 4<<20 || a.GetRegionSize() != 1<<20 || len(a.GetGrants()) != 1 ||
		a.GetLingerMs() != time.Hour.Milliseconds() || a.GetTransport() != "tcp" {
		t.Errorf("answer %v", a)
	}
	if terms := a.GetGrants()[0].GetTerms(); terms.GetHolder() != 1 || terms.GetGrant() != ca.GetGrants()[0].GetId() || a.GetGrants()[0].GetToken() == ca.GetGrants()[0].GetToken() {
		t.Errorf("grant %v", a.GetGrants()[0])
	}
	for watch.Receive() {
	}
	heldBy(t, "Watch", watch.Err(), 1)
	_ = watch.Close()
	refusedOf := func(holder uint64) {
		t.Helper()
		_, err := client.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: id, Holder: holder}))
		heldBy(t, "Renew", err, 1)
		_, err = client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{CacheId: id, Change: 8, Regions: 1, Holder: holder}))
		heldBy(t, "Reallocate", err, 1)
		_, err = client.Settle(ctx, connect.NewRequest(&managerv1.SettleRequest{
			CacheId: id, Change: 9, Capacity: 6 << 20, Holder: holder,
			Grants: []*managerv1.SettledGrant{{Id: ca.GetGrants()[0].GetId(), Regions: 4}, {Id: more.Msg.GetGrants()[0].GetId(), Regions: 2}},
		}))
		heldBy(t, "Settle", err, 1)
		_, err = client.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id, Holder: &holder}))
		heldBy(t, "Deallocate", err, 1)
		if holder > 0 {
			return
		}
		_, err = client.Attach(ctx, connect.NewRequest(&managerv1.AttachRequest{CacheId: id, RequestId: newRequestID()}))
		heldBy(t, "Attach", err, 1)
	}
	refusedOf(0)
	refusedOf(2)
	for name, bad := range map[string]*managerv1.AttachRequest{
		"no request":       {CacheId: id, Holder: 1},
		"another capacity": {CacheId: id, Holder: 1, RequestId: newRequestID(), Capacity: 1 << 20},
		"negative linger":  {CacheId: id, Holder: 1, RequestId: newRequestID(), LingerMs: new(int64(-1))},
	} {
		if _, err := client.Attach(ctx, connect.NewRequest(bad)); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Attach(ctx, connect.NewRequest(&managerv1.AttachRequest{CacheId: "cache", RequestId: newRequestID()})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an unknown cache: %v", err)
	}

	// What the former holder had begun is given up.
	known, err := client.DescribeCache(ctx, connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: id}))
	if err != nil || len(known.Msg.GetCache().GetGrants()) != 1 || known.Msg.GetCache().GetHolder() != 1 {
		t.Errorf("the cache is %v, %v", known, err)
	}
	for range 2 {
		again, err := client.Attach(ctx, connect.NewRequest(req))
		if err != nil || again.Msg.GetHolder() != 1 || len(again.Msg.GetGrants()) != 1 {
			t.Errorf("a repetition: %v, %v", again, err)
		}
		m.led().rest(t)
		store = store.next()
		m, client = kept(t, store, clock, Options{})
	}
	refusedOf(0)
	if _, err := client.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: id, Holder: 1})); err != nil {
		t.Error(err)
	}
	if _, err := client.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id})); err != nil {
		t.Errorf("an operator deletes the cache: %v", err)
	}
	if _, err := client.Attach(ctx, connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a late repetition: %v", err)
	}
}

// A region has the place of the last Settle, or none if it may have moved since.
func TestPlaces(t *testing.T) {
	const settle, reallocate = true, false
	type step struct {
		settles bool
		change  uint64
		places  string // of settle
		moves   string // of reallocate; empty: not said
	}
	for name, tc := range map[string]struct {
		steps []step
		want  string
	}{
		"allocated":                       {nil, "1:0+4"},
		"settled":                         {[]step{{settle, 1, "1:2+2 0:0+1 1:0+1", ""}}, "1:2+2 0:0+1 1:0+1"},
		"settled without places":          {[]step{{settle, 1, "", ""}}, ""},
		"all may have moved":              {[]step{{reallocate, 1, "", ""}}, ""},
		"one may have moved":              {[]step{{reallocate, 1, "", "1+1"}}, "1:0+1 0:0+1 1:2+2"},
		"two runs may have moved":         {[]step{{reallocate, 1, "", "0+1 3+1"}}, "0:0+1 1:1+2 0:0+1"},
		"one beyond may have moved":       {[]step{{reallocate, 1, "", "4+9"}}, "1:0+4"},
		"moved and settled":               {[]step{{reallocate, 1, "", "1+1"}, {settle, 2, "1:0+3 1:3+1", ""}}, "1:0+3 1:3+1"},
		"settled before it moved":         {[]step{{reallocate, 2, "", "1+1"}, {settle, 1, "1:0+4", ""}}, "1:0+1 0:0+1 1:2+2"},
		"moved twice":                     {[]step{{reallocate, 1, "", "1+1"}, {reallocate, 2, "", "2+1"}}, "1:0+1 0:0+2 1:3+1"},
		"moved twice, settled in between": {[]step{{reallocate, 1, "", "0+1"}, {reallocate, 3, "", "2+1"}, {settle, 2, "1:0+4", ""}}, "0:0+1 1:1+1 0:0+1 1:3+1"},
		"all moved, then one":             {[]step{{reallocate, 1, "", ""}, {reallocate, 2, "", "2+1"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			store := newCrashStore()
			clock := &handClock{now: time.Unix(1e9, 0)}
			m, client := kept(t, store, clock, Options{})
			ca := allocateKept(t, client, 0)
			for _, s := range tc.steps {
				if s.settles {
					_, err := client.Settle(ctx, connect.NewRequest(&managerv1.SettleRequest{
						CacheId: ca.GetCacheId(), Change: s.change, Capacity: 4 << 20, Places: placesFrom(t, s.places),
						Grants: []*managerv1.SettledGrant{{Id: ca.GetGrants()[0].GetId(), Regions: 4}},
					}))
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				req := &managerv1.ReallocateRequest{CacheId: ca.GetCacheId(), Change: s.change, Regions: 1}
				if s.moves != "" {
					req.Moves = new(managerv1.RegionRuns)
					for _, run := range strings.Fields(s.moves) {
						r := new(managerv1.RegionRun)
						if _, err := fmt.Sscanf(run, "%d+%d", &r.First, &r.Regions); err != nil {
							t.Fatal(err)
						}
						req.Moves.Runs = append(req.Moves.Runs, r)
					}
				}
				if _, err := client.Reallocate(ctx, connect.NewRequest(req)); err != nil {
					t.Fatal(err)
				}
			}
			m.led().rest(t)
			_, client = kept(t, store.next(), clock, Options{}) // the next leader knows as much
			a, err := client.Attach(ctx, connect.NewRequest(&managerv1.AttachRequest{CacheId: ca.GetCacheId(), RequestId: newRequestID()}))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range a.Msg.GetPlaces() {
				got = append(got, fmt.Sprintf("%d:%d+%d", p.GetGrant(), p.GetIndex(), p.GetRegions()))
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("places %q, want %q", got, tc.want)
			}
		})
	}
}

// placesFrom parses places: GRANT:INDEX+REGIONS each.
func placesFrom(t *testing.T, text string) (all []*managerv1.Places) {
	t.Helper()
	for _, run := range strings.Fields(text) {
		p := new(managerv1.Places)
		if _, err := fmt.Sscanf(run, "%d:%d+%d", &p.Grant, &p.Index, &p.Regions); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// Places that cannot be are refused, and nothing changes.
func TestPlacesAreChecked(t *testing.T) {
	ctx := testContext(t)
	_, client := kept(t, newCrashStore(), &handClock{now: time.Unix(1e9, 0)}, Options{})
	ca := allocateKept(t, client, 0)
	describe := func() *managerv1.Cache {
		r, err := client.DescribeCache(ctx, connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: ca.GetCacheId()}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg.GetCache()
	}
	before := describe()
	for _, places := range []string{
		"1:0+0", "1:0+5", "1:0+4 0:0+1", "1:1+4", "2:0+1", "1:0+2 1:1+1", "1:4294967295+2", "1:0+4294967295", "1:0+1 1:0+1",
	} {
		_, err := client.Settle(ctx, connect.NewRequest(&managerv1.SettleRequest{
			CacheId: ca.GetCacheId(), Change: 1, Capacity: 4 << 20, Places: placesFrom(t, places),
			Grants: []*managerv1.SettledGrant{{Id: ca.GetGrants()[0].GetId(), Regions: 4}},
		}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("places %q: %v", places, err)
		}
	}
	for _, run := range []*managerv1.RegionRun{{}, {First: maxRegions, Regions: 1}, {First: 1<<32 - 1, Regions: 1<<32 - 1}} {
		_, err := client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{
			CacheId: ca.GetCacheId(), Change: 1, Regions: 1, Moves: &managerv1.RegionRuns{Runs: []*managerv1.RegionRun{run}},
		}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("moves of %v: %v", run, err)
		}
	}
	if after := describe(); !proto.Equal(after, before) {
		t.Errorf("the cache is %v, and was %v", after, before)
	}
}

// A cache outlives its lease by the time that its client asked for, at most by the manager's
// maximum, also if leaders change, and a renewal ends that time.
func TestLinger(t *testing.T) {
	const lease, linger, most = time.Minute, 10 * time.Minute, time.Hour
	ctx := testContext(t)
	store, clock := newCrashStore(), &handClock{now: time.Unix(1e9, 0)}
	opts := Options{Lease: lease, MaxLinger: most}
	m, client := kept(t, store, clock, opts)
	if ca := allocateKept(t, client, 1000*time.Hour); ca.GetLingerMs() != most.Milliseconds() {
		t.Errorf("a client that asks for 1000 hours gets %v ms", ca.GetLingerMs())
	}
	brief := allocateKept(t, client, 0).GetCacheId()
	id := allocateKept(t, client, linger).GetCacheId()
	cache := func(id string) *managerv1.Cache {
		for _, c := range m.led().state.describe().GetCaches() {
			if c.GetId() == id {
				return c
			}
		}
		return nil
	}
	ended := clock.read().Add(lease)
	lingers := func(when string, until time.Time) {
		t.Helper()
		c := cache(id)
		if c == nil || c.GetLingersUnixMs() != api.ToMillis(until) || c.GetPriceMicros() != int64(plan.Dollars(1.0/16)) || len(c.GetGrants()) != 1 {
			t.Fatalf("%s: %v, want it to be kept until %v", when, c, until)
		}
	}
	m.led().expireAt(clock.advance(lease - time.Second))
	lingers("before its lease ends", time.Time{})
	m.led().expireAt(clock.advance(2 * time.Second))
	if cache(brief) != nil {
		t.Error("a cache that does not linger is kept")
	}
	lingers("after its lease has ended", ended.Add(linger))
	if n := m.Metrics(); n.Lingers != 2 || n.Expired != 1 {
		t.Errorf("%d caches linger, %d have expired", n.Lingers, n.Expired)
	}
	if _, err := client.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: id})); err != nil {
		t.Fatal(err)
	}
	lingers("after a late renewal", time.Time{})
	ended = clock.read().Add(lease)
	m.led().expireAt(clock.advance(lease + time.Second))
	lingers("after its lease has ended again", ended.Add(linger))

	restart := func() {
		t.Helper()
		m.led().rest(t)
		store = store.next()
		m, client = kept(t, store, clock, opts)
		m.led().expireAt(clock.advance(time.Second))
	}
	restart()
	lingers("with another leader", ended.Add(linger))
	clock.advance(-2 * time.Hour) // the next leader's clock is behind
	behind := clock.read().Add(linger)
	restart()
	lingers("with a leader whose clock is behind", behind)
	restart()
	lingers("with the one after it", behind)

	taken, err := client.Attach(ctx, connect.NewRequest(&managerv1.AttachRequest{CacheId: id, RequestId: newRequestID(), LingerMs: new((2 * linger).Milliseconds())}))
	if err != nil || taken.Msg.GetLingerMs() != (2*linger).Milliseconds() {
		t.Fatalf("%v, %v", taken, err)
	}
	if keep := time.Duration(taken.Msg.GetGrants()[0].GetTerms().GetKeepMs()) * time.Millisecond; keep < lease+2*linger {
		t.Errorf("servers keep its grants for %v", keep)
	}
	lingers("after it was taken up", time.Time{})
	ended = clock.read().Add(lease)
	m.led().expireAt(clock.advance(lease + time.Second))
	lingers("after the second client has ended", ended.Add(2*linger))
	m.led().expireAt(clock.advance(2*linger - 2*time.Second))
	lingers("to the end", ended.Add(2*linger))
	m.led().expireAt(clock.advance(2 * time.Second))
	if c := cache(id); c != nil {
		t.Errorf("the cache has lingered, and is %v", c)
	}
}

// A repetition of Allocate gets no terms of the next holder.
func TestFormerHolderGetsNoTerms(t *testing.T) {
	ctx := testContext(t)
	m, client := serve(t, Options{})
	if err := m.led().state.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	req := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 4 << 20, RegionSize: 1 << 20, LingerMs: 1000}
	ca, err := client.Allocate(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Attach(ctx, connect.NewRequest(&managerv1.AttachRequest{CacheId: ca.Msg.GetCacheId(), RequestId: newRequestID()})); err != nil {
		t.Fatal(err)
	}
	_, err = client.Allocate(ctx, connect.NewRequest(req))
	heldBy(t, "Allocate", err, 1)
}

// However many moves are asked for and never settled, the cache's record can be written.
func TestMovesAreBounded(t *testing.T) {
	ca := new(cache)
	runs := &managerv1.RegionRuns{Runs: slices.Repeat([]*managerv1.RegionRun{{First: maxRegions / 2, Regions: maxRegions / 2}}, 6500)}
	for change := range uint64(40) {
		ca.moves(change, runs, false)
		if n := proto.Size(ca.moving); n > catalog.MaxBytes/2 {
			t.Fatalf("%d bytes after %d changes", n, change+1)
		}
	}
	if !ca.moving.GetAll() {
		t.Error("runs are kept for ever")
	}
}
