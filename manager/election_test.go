package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
)

// Leases of leaders in these tests.
const (
	etcdLease    = 2 * time.Second  // its end is awaited; etcd allows no shorter one
	revokedLease = 10 * time.Second // a test revokes it; the leader notices that at its next renewal
	longLease    = time.Minute
)

// candidates starts managers that share a catalog in etcd, whose leader has the given lease. It
// returns them when one leads, and a client of all of them.
func candidates(t *testing.T, server *etcdtest.Server, n int, lease time.Duration) ([]*Manager, access.Client) {
	t.Helper()
	var all []*Manager
	var urls []string
	for range n {
		m, _ := serve(t, Options{Transport: "mem", Catalog: "etcd://" + server.Address + "/managers?lease=" + lease.String(), Lease: time.Hour})
		all, urls = append(all, m), append(urls, m.URL())
	}
	awaitLeader(t, all)
	return all, access.Dial(strings.Join(urls, ","))
}

// awaitLeader returns the manager that leads, when there is one.
func awaitLeader(t *testing.T, all []*Manager) *Manager {
	t.Helper()
	for ctx := testContext(t); ; {
		for _, m := range all {
			if _, err := m.leading(); err == nil {
				return m
			}
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			t.Fatal("no manager leads")
		}
	}
}

// awaitAgreement returns the leader when all managers name it. While leases end, a manager
// leads for a moment whose lease etcd has revoked already.
func awaitAgreement(t *testing.T, all []*Manager) *leader {
	t.Helper()
	names := func(m *Manager, leader *Manager) bool {
		_, err := access.Dial(m.URL()).Describe(testContext(t), connect.NewRequest(&managerv1.DescribeRequest{}))
		return m == leader || connect.CodeOf(err) == connect.CodeUnavailable && detailOf(err).GetLeaderUrl() == leader.URL()
	}
	for ctx := testContext(t); ; {
		m := awaitLeader(t, all)
		l, err := m.leading()
		if err == nil && !slices.ContainsFunc(all, func(other *Manager) bool { return !names(other, m) }) {
			return l
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			t.Fatalf("not all managers name %s as the leader", m.URL())
		}
	}
}

// endTerms revokes the leases of all candidates, as if they had been silent.
func endTerms(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	client := server.Client("", "")
	defer func() { _ = client.Close() }()
	leases, err := client.Leases(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Leases {
		if _, err := client.Revoke(testContext(t), l.ID); err != nil {
			t.Log(err)
		}
	}
}

// One of several managers leads, and the others name it. When its term ends, another one
// knows its caches, and a client notices nothing.
func TestElection(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	managers, client := candidates(t, server, 3, revokedLease)
	n := startNode(t, "node")
	await(t, announce(t, n, client), "registration")
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		former := awaitAgreement(t, managers)
		endTerms(t, server)
		testrun.Receive(t, "the former leader notices the end of its term", former.ctx.Done())
		if l := awaitAgreement(t, managers); l.self.Epoch <= former.self.Epoch {
			t.Errorf("epoch %d after %d", l.self.Epoch, former.self.Epoch)
		}
		if _, err := client.Renew(testContext(t), connect.NewRequest(&managerv1.RenewRequest{CacheId: ca.GetCacheId()})); err != nil {
			t.Errorf("renewed at another leader: %v", err)
		}
		// What the former leader does now changes nothing.
		if _, _, err := former.state.deallocate(ca.GetCacheId(), nil, time.Now(), "by a former leader"); !errors.Is(err, errStore) {
			t.Errorf("a former leader: %v", err)
		}
	}
	answer, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()}))
	if err != nil || !answer.Msg.GetExisted() {
		t.Errorf("%v, %v", answer, err)
	}
}

func detailOf(err error) *managerv1.NotLeaderDetail {
	var refusal *connect.Error
	if !errors.As(err, &refusal) {
		return nil
	}
	for _, d := range refusal.Details() {
		if v, err := d.Value(); err == nil {
			if n, ok := v.(*managerv1.NotLeaderDetail); ok {
				return n
			}
		}
	}
	return nil
}

// While etcd is away, stopped or full, calls that change something wait or fail, and nothing
// is lost. Afterwards all goes on by itself.
func TestEtcdFails(t *testing.T) {
	for name, fail := range map[string]func(*etcdtest.Server) (mend func()){
		"away":    func(s *etcdtest.Server) func() { s.Kill(); return s.Run },
		"stopped": func(s *etcdtest.Server) func() { s.Pause(); return s.Resume },
		"full":    func(s *etcdtest.Server) func() { s.Fill(); return s.Clear },
	} {
		t.Run(name, func(t *testing.T) {
			server := etcdtest.Start(t, etcdtest.Options{Quota: 16 << 20})
			managers, client := candidates(t, server, 2, etcdLease)
			await(t, announce(t, startNode(t, "node"), client), "registration")
			ca, err := allocateBytes(t, client, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			mend := fail(server)
			allocate := func(wait time.Duration) error {
				ctx, cancel := context.WithTimeout(context.Background(), wait)
				defer cancel()
				_, err := client.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20}))
				return err
			}
			switch code := connect.CodeOf(allocate(2 * etcdLease)); code {
			case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
			default:
				t.Errorf("allocated without etcd: %v", code)
			}
			mend()
			awaitLeader(t, managers)
			for ctx := testContext(t); ; {
				if err = allocate(testTimeout); err == nil || !clock.Sleep(ctx, 100*time.Millisecond) {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Renew(testContext(t), connect.NewRequest(&managerv1.RenewRequest{CacheId: ca.GetCacheId()})); err != nil {
				t.Error(err)
			}
		})
	}
}

// While etcd is away, the leader and the standby say so, with its address and the reason.
func TestErrorNamesEtcd(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	managers, client := candidates(t, server, 2, etcdLease)
	awaitAgreement(t, managers)
	describe := func(c access.Client) error {
		_, err := c.Describe(testContext(t), connect.NewRequest(&managerv1.DescribeRequest{}))
		return err
	}
	server.Kill()
	for _, m := range managers {
		says := func(err error) bool {
			return connect.CodeOf(err) == connect.CodeUnavailable && strings.Contains(err.Error(), "etcd "+server.Address) &&
				strings.Contains(err.Error(), "connection refused") && !strings.Contains(err.Error(), "\n")
		}
		one, err := access.Dial(m.URL()), error(nil)
		for ctx := testContext(t); !says(err); err = describe(one) {
			if !clock.Sleep(ctx, 10*time.Millisecond) {
				t.Fatalf("a call without etcd: %v", err)
			}
		}
		t.Log(err)
	}
	server.Run()
	awaitAgreement(t, managers)
	if err := describe(client); err != nil {
		t.Error(err)
	}
	for _, m := range managers {
		for ctx := testContext(t); m.store.Trouble() != nil; {
			if !clock.Sleep(ctx, 10*time.Millisecond) {
				t.Fatal("etcd is back: ", m.store.Trouble())
			}
		}
	}
}

// Launched servers call all managers, so that they follow the leader.
func TestLaunchedServersCallAllManagers(t *testing.T) {
	a := newScripted(t, 1<<20)
	want := "http://first:7070,http://second:7070"
	serve(t, Options{Allocator: a, Managers: want})
	if got := a.host.URL(); got != want {
		t.Errorf("servers call %s, want %s", got, want)
	}
}

// A launched server whose first call is to a manager that has never led, and so does not know
// its token, is sent to the leader; with a wrong token it is refused there.
func TestStandbyAndLaunchedToken(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	tokens := func() *access.TokenSet { return access.NewTokenSet(testTokens...) }
	var all []*Manager
	for range 2 {
		m, _ := serve(t, Options{Transport: "mem", Tokens: tokens, Catalog: "etcd://" + server.Address + "/managers?lease=" + longLease.String(), Lease: time.Hour})
		all = append(all, m)
	}
	leader := awaitLeader(t, all)
	standby := all[(slices.Index(all, leader)+1)%2]
	register := func(token string) error {
		client, err := access.DialWith(standby.URL()+","+leader.URL(), access.Credentials{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Heartbeat(testContext(t), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "vm-1"}))
		return err
	}
	token := leader.guard.LaunchedToken("vm-1")
	if err := register(token); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an admitted heartbeat of an unknown VM: %v", err)
	}
	if err := register(token + "x"); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a wrong token: %v", err)
	}
}
