package manager

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
)

// What a source measures holds for itself over that transport; others have the median of several
// sources, or the base. What cannot have been measured does not count.
func TestRates(t *testing.T) {
	r := rates{base: 1 << 30}
	is := func(transport, name string, want float64) {
		t.Helper()
		if got := r.of(transport, name); got != want {
			t.Errorf("%q over %s: %v bytes a second, want %v", name, transport, got, want)
		}
	}
	for _, useless := range []struct {
		bytes, returned uint64
		took            time.Duration
	}{
		{leastMove - 1, 1 << 40, time.Hour}, {leastMove, 1 << 40, 0}, {leastMove, 1 << 40, -1}, {leastMove, leastMove - 1, time.Second},
		{1 << 50, 1 << 50, time.Second}, {1 << 63, 1 << 63, time.Hour}, {1 << 50, 0, time.Second},
	} {
		if r.report("tcp", "a", useless.bytes, useless.returned, useless.took) {
			t.Errorf("%v counts", useless)
		}
		is("tcp", "a", 1<<30)
	}
	report := func(transport, name string, bytes uint64) {
		t.Helper()
		if !r.report(transport, name, bytes, bytes, time.Second) {
			t.Errorf("%d bytes do not count", bytes)
		}
	}
	report("tcp", "a", 1<<34)
	report("tcp", "a", 1<<24)
	report("tcp", "a", 1<<25)
	is("tcp", "a", 1<<25) // the median
	is("tcp", "b", 1<<30)
	is("shm", "a", 1<<30)
	report("tcp", "b", 1<<32)
	is("tcp", "c", 1<<30) // two voices are too few
	report("tcp", "c", 1<<31)
	is("tcp", "new", 1<<31)
	for range 100 { // the loudest voice is one
		report("tcp", "a", 1<<39)
	}
	is("tcp", "new", 1<<32)
	is("tcp", "c", 1<<31)
	var again rates
	again.setBase("shm", 7)
	again.relearn(r.learnt())
	for _, name := range []string{"a", "b", "c", "new"} {
		if got, want := again.of("tcp", name), r.of("tcp", name); got != want {
			t.Errorf("%q after a restart: %v, want %v", name, got, want)
		}
	}
	if shm, other := again.of("shm", "new"), again.of("verbs", "new"); shm != 7 || other != 0 {
		t.Errorf("the base of shm is %v there, and %v elsewhere", shm, other)
	}
	for i := range 2 * sourcesKept {
		report("tcp", fmt.Sprint("many", i), 1<<30)
	}
	if n := len(r.learnt()); n != sourcesKept {
		t.Errorf("%d sources are kept", n)
	}
}

// A client that reports a false rate changes what VMs others get neither at once nor after a restart.
func TestFalseRateIsNobodyElses(t *testing.T) {
	types, err := menu.Parse([]byte(`{"version": 1, "types": [{"name": "v", "memory": "64MiB", "sold": [
		{"cloud_region": "here", "distance": 1, "price": 1, "spot": {"price": 0.1, "lowest": 0.1, "highest": 0.1, "notice": "10s"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	sells := func() allocator.Allocator {
		a, err := allocator.NewInProcess(allocator.InProcessOptions{Menu: &types, Market: menu.Options{Step: -1}, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	tokens := access.NewTokenSet(append([]access.Token{{Name: "other", Roles: []access.Role{access.RoleClient}, Secret: "other-token-0123456789"}}, testTokens...)...)
	s := newCrashStore()
	opts := Options{MigrationRate: 1 << 20, store: s, Moved: true, Economy: Economy{Every: -1}, Tokens: func() *access.TokenSet { return tokens }}
	opts.Allocator = sells()
	m, _ := serve(t, opts)
	ctx := testContext(t)
	allocate := func(m *Manager, secret string) *managerv1.AllocateResponse {
		t.Helper()
		r, err := dialAs(t, m, secret).Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{
			RequestId: newRequestID(), Capacity: 64 << 20, RegionSize: 1 << 20, DurationSeconds: 3600,
		}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg
	}
	mine := allocate(m, "app-token-0123456789")
	if mine.GetGrants()[0].GetVm().GetSpot() {
		t.Fatal("64 MiB leave a VM in 10 s, at 1 MiB/s")
	}
	client := dialAs(t, m, "app-token-0123456789")
	settle := func(moved uint64, grant string) {
		t.Helper()
		if _, err := client.Settle(ctx, connect.NewRequest(&managerv1.SettleRequest{
			CacheId: mine.GetCacheId(), Change: nextChange(), Capacity: 64 << 20, MovedBytes: moved, MovedMs: 1000,
			Grants: []*managerv1.SettledGrant{{Id: grant, Regions: 64}},
		})); err != nil {
			t.Fatal(err)
		}
	}
	settle(1<<50, "g1") // nothing has moved
	if allocate(m, "app-token-0123456789").GetGrants()[0].GetVm().GetSpot() {
		t.Error("a client that has moved nothing has measured a rate")
	}
	if _, err := client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{CacheId: mine.GetCacheId(), Change: nextChange(), Regions: 64})); err != nil {
		t.Fatal(err)
	}
	settle(64<<20, "g2")
	if !allocate(m, "app-token-0123456789").GetGrants()[0].GetVm().GetSpot() {
		t.Error("the client's own measurement does not count for it")
	}
	if allocate(m, "other-token-0123456789").GetGrants()[0].GetVm().GetSpot() {
		t.Error("one client's measurement counts for another one")
	}
	opts.Allocator = sells()
	m, _ = serve(t, opts)
	if allocate(m, "other-token-0123456789").GetGrants()[0].GetVm().GetSpot() {
		t.Error("after a restart one client's measurement counts for another one")
	}
	if !allocate(m, "app-token-0123456789").GetGrants()[0].GetVm().GetSpot() {
		t.Error("after a restart the client's own measurement does not count for it")
	}
}
