package manager

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
)

// A client whose token was removed goes on renewing: the refused renewals keep its cache for the
// grace, and no longer. A token that is good again in time keeps the cache, and the grace begins anew.
func TestRefusedRenewalsAreSignsOfLife(t *testing.T) {
	c := &handClock{now: time.Unix(2_000_000, 0)}
	var tokens atomic.Pointer[access.TokenSet]
	good, none := access.NewTokenSet(testTokens...), access.NewTokenSet(testTokens[1:]...)
	tokens.Store(good)
	const lease, grace = time.Minute, time.Hour
	m, _ := serve(t, Options{Transport: "tcp", Lease: lease, RenewalGrace: grace, Tokens: tokens.Load, now: c.read})
	if err := m.led().state.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	client := dialAs(t, m, testTokens[0].Secret)
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	renew := func(holder uint64) error {
		_, err := client.Renew(testContext(t), connect.NewRequest(&managerv1.RenewRequest{CacheId: ca.GetCacheId(), Holder: holder}))
		return err
	}
	refused := func(holder uint64) {
		t.Helper()
		if e, ok := errors.AsType[*api.TokenError](renew(holder)); !ok || e.Problem != api.TokenUnknown {
			t.Fatalf("a renewal with a removed token: %v", e)
		}
	}
	there := func() bool {
		_, ok := m.led().state.watched(ca.GetCacheId())
		return ok
	}
	for range 2 {
		tokens.Store(none)
		for range grace/lease - 1 {
			refused(0)
			m.led().expireAt(c.advance(lease))
			if !there() {
				t.Fatal("the cache is deallocated while its client tries to renew")
			}
		}
		tokens.Store(good)
		if err := renew(0); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Metrics(); n.RenewalsRefused < uint64(2*(grace/lease-1)) || n.Expired != 0 {
		t.Errorf("%d renewals are counted as refused, %d caches have expired", n.RenewalsRefused, n.Expired)
	}
	tokens.Store(none)
	refused(1) // another client's, which does not hold the cache
	m.led().state.mu.Lock()
	if since := m.led().state.caches[ca.GetCacheId()].refused; !since.IsZero() {
		t.Errorf("another client's refused renewal counts, at %v", since)
	}
	m.led().state.mu.Unlock()
	for range grace / lease {
		refused(0)
		m.led().expireAt(c.advance(lease))
	}
	if !there() {
		t.Error("the cache is deallocated before the grace has passed")
	}
	refused(0)
	m.led().expireAt(c.advance(time.Second))
	if there() {
		t.Error("the cache is kept for longer than the grace")
	}
}

// A refused renewal says since when the renewals were refused, where the lease ends.
func TestRefusedRenewalIsAReason(t *testing.T) {
	c := &handClock{now: time.Unix(2_000_000, 0)}
	m, client := serve(t, Options{Transport: "tcp", Lease: time.Minute, RenewalGrace: -1, now: c.read})
	if err := m.led().state.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if first, _ := m.led().state.refused(ca.GetCacheId(), 0, 0, m.led().term()); first != (i == 0) {
			t.Errorf("refused for time %d: the first one: %v", i, first)
		}
	}
	reasons, err := m.led().state.deleteExpired(c.advance(time.Minute+1), time.Minute, false, false)
	if err != nil || !strings.Contains(reasons[ca.GetCacheId()], "refused since 1970-01-24T03:33:20Z") {
		t.Errorf("%q, %v", reasons, err)
	}
}

// If most clients fall silent together no lease ends for a while; if few do, theirs end.
func TestMostLeasesEndTogether(t *testing.T) {
	const clients, lease = 6, time.Minute
	for _, silent := range []int{2, 3, clients} {
		c := &handClock{now: time.Unix(2_000_000, 0)}
		m, client := serve(t, Options{Transport: "tcp", Lease: lease, now: c.read})
		if err := m.led().state.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		var caches []string
		for range clients {
			ca, err := allocateBytes(t, client, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			caches = append(caches, ca.GetCacheId())
		}
		for half := range 2 * (blindTerms + 2) {
			c.advance(lease / 2)
			for _, id := range caches[silent:] {
				if _, err := client.Renew(testContext(t), connect.NewRequest(&managerv1.RenewRequest{CacheId: id})); err != nil {
					t.Fatal(err)
				}
			}
			m.led().expireAt(c.advance(1))
			want := clients
			if ended := half > 0; ended && silent < brakeFrom || half >= 2*blindTerms {
				want = clients - silent
			}
			if left, _ := m.led().state.size(); left != want {
				t.Errorf("%d of %d clients are silent for %v: %d caches are left, want %d", silent, clients, time.Duration(half+1)*lease/2, left, want)
			}
		}
		if n := m.Metrics().Braked; n != 0 && silent < brakeFrom || n != 1 && silent >= brakeFrom {
			t.Errorf("%d of %d clients are silent: leases were braked %d times", silent, clients, n)
		}
	}
}
