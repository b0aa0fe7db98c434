package catalog

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/testrun"
)

// connected returns a store, which is closed with the test, and its client.
func connected(t *testing.T, opts EtcdOptions) (*Etcd, *clientv3.Client) {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	s, err := OpenEtcd(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	client, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// A lease that becomes stale while others are revoked is revoked the next time.
func TestStaleDuringRevoke(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s, client := connected(t, EtcdOptions{Endpoints: []string{server.Address}})
	var leases [3]clientv3.LeaseID
	for i := range leases {
		lease, err := client.Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		leases[i] = lease.ID
	}
	s.stale = slices.Clone(leases[:2])
	client.Lease = &meanwhile{client.Lease, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stale = append(s.stale, leases[2])
	}}
	for _, want := range []int{1, 0} {
		if err := s.revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		left, err := client.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(left.Leases) != want || len(s.stale) != want {
			t.Errorf("leases %v, of which %v are stale, want %d", left.Leases, s.stale, want)
		}
	}
}

// meanwhile calls do before the first Revoke.
type meanwhile struct {
	clientv3.Lease
	do func()
}

func (m *meanwhile) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if m.do != nil {
		m.do()
		m.do = nil
	}
	return m.Lease.Revoke(ctx, id)
}

// A candidate that waits for its watch, and has no lease yet, says that etcd has gone away.
func TestEtcdGoesBeforeWatch(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s, client := connected(t, EtcdOptions{Endpoints: []string{server.Address}, LeaseTTL: 4 * time.Second})
	client.Watcher = &before{Watcher: client.Watcher, do: server.Kill}
	elected := make(chan error, 1)
	go func() {
		_, err := s.Campaign(t.Context(), "")
		elected <- err
	}()
	testrun.Until(t, "the candidate says what it waits for", func() bool {
		err := s.Trouble()
		return err != nil && strings.Contains(err.Error(), "connection refused")
	})
	server.Run()
	if err := testrun.Receive(t, "the candidate is elected", elected); err != nil {
		t.Error(err)
	}
}

// before calls do before the first Watch.
type before struct {
	clientv3.Watcher
	do   func()
	once sync.Once
}

func (b *before) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	b.once.Do(b.do)
	return b.Watcher.Watch(ctx, key, opts...)
}

// A member that does not answer does not hide that another one does.
func TestUnreachableTriesAllMembers(t *testing.T) {
	config := fabrictest.TLS(t)
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	silent, member := listen(), listen()
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := member.Accept()
		if err != nil {
			return
		}
		_ = tls.Server(conn, config).HandshakeContext(t.Context())
		_ = conn.Close()
	}()
	s, err := OpenEtcd(EtcdOptions{
		Endpoints: []string{silent.Addr().String(), member.Addr().String()}, TLS: config, LeaseTTL: minLeaseTTL,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.unreachable(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_ = member.Close()
	testrun.Receive(t, "the member ends", served)
}
