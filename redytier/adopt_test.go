package redytier

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// successive sends calls to the present one of several managers.
type successive struct {
	url     atomic.Pointer[url.URL]
	adopted chan struct{} // holds a token after an answer to Adopt
}

func (s *successive) Do(r *http.Request) (*http.Response, error) {
	r.URL.Host, r.Host = s.url.Load().Host, ""
	answer, err := api.HTTPClient.Do(r)
	if err == nil && r.URL.Path == managerv1connect.ManagerServiceAdoptProcedure {
		offer(s.adopted)
	}
	return answer, err
}

// lead starts a manager without records, which is the present one from then on.
func (s *successive) lead(t *testing.T) *manager.Embedded {
	t.Helper()
	m, err := manager.Embed(t.Context(), manager.EmbedOptions{Pool: true, Lease: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	at, err := url.Parse(m.URL())
	if err != nil {
		t.Fatal(err)
	}
	s.url.Store(at)
	return m
}

// announce announces a node to a manager until the end of the test, or until it is stopped.
func announce(t *testing.T, n *node.Node, mgr managerv1connect.ManagerServiceClient) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	registered, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- n.Announce(ctx, mgr, sync.OnceFunc(func() { close(registered) })) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := testrun.Receive(t, "the node is announced no more", over); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	testrun.Receive(t, "the node is registered", registered)
	return stop
}

// A manager without records takes over from another one. It adopts the cache as soon as its servers have
// registered: no byte is lost, and the cache moves away from a VM that is reclaimed, grows, and ends.
func TestAdopted(t *testing.T) {
	for name, c := range map[string]Configuration{"one-sided": configurations[0], "batches": configurations[2]} {
		t.Run(name, func(t *testing.T) {
			s := successive{adopted: make(chan struct{}, 1)}
			before := s.lead(t)
			mgr := managerv1connect.NewManagerServiceClient(&s, "http://manager")
			var nodes []*node.Node
			var leave []func()
			for _, id := range []string{"a", "b", "c"} {
				n, err := node.Start(node.Options{ID: id, Memory: 4 * managedRegion, Cores: 4, Transport: "mem", Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := n.Close(); err != nil {
						t.Error(err)
					}
				})
				nodes = append(nodes, n)
				leave = append(leave, announce(t, n, mgr))
			}
			m := &managed{events: make(chan Event, 256)}
			harmless := func(e Event) Event {
				if e.Kind == VMLost || e.Kind == DataLost || e.Kind == CacheDeleted {
					t.Errorf("event %+v", e)
				}
				return e
			}
			expect := func(kind EventKind) Event {
				for {
					if e := harmless(testrun.Receive(t, "event "+kind.String(), m.events)); e.Kind == kind {
						return e
					}
				}
			}
			cache := m.create(t, mgr, Config{Transport: "mem", Configuration: c, Capacity: 6 * managedRegion})
			want := make([]byte, cache.Capacity())
			for i, rng := 0, rand.New(rand.NewPCG(1, 2)); i < len(want); i++ {
				want[i] = byte(rng.Uint32())
			}
			p := newPump(t, cache, 1)
			p.do(true, want, 0, func(c device.Completion) {
				if c.Err != nil {
					t.Error(c.Err)
				}
			})
			p.drain()
			p.close()
			for _, stop := range leave {
				stop()
			}
			if err := before.Close(); err != nil {
				t.Fatal(err)
			}
			m.Embedded = s.lead(t)
			testrun.Receive(t, "the next manager has refused to adopt the cache", s.adopted)
			for _, n := range nodes {
				announce(t, n, mgr)
			}
			testrun.Until(t, "the manager knows the cache", func() bool { return len(m.known(t).GetCaches()) == 1 })
			m.agree(t, cache)
			if got := content(t, cache); !bytes.Equal(got, want) {
				t.Error(testrun.WrongMark, "the cache has other bytes")
			}
			first := cache.Regions()[0].VM
			if _, err := mgr.Reclaim(t.Context(), connect.NewRequest(&managerv1.ReclaimRequest{VmId: first, NoticeMs: time.Hour.Milliseconds()})); err != nil {
				t.Fatal(err)
			}
			if e := expect(VMLeft); e.VM != first {
				t.Errorf("the cache has left %s, not %s", e.VM, first)
			}
			if err := cache.Reshape(t.Context(), 8*managedRegion, SLO{}); err != nil {
				t.Error(err)
			}
			m.agree(t, cache)
			if got := content(t, cache); !bytes.Equal(got[:len(want)], want) {
				t.Error(testrun.WrongMark, "the cache has other bytes after the move")
			}
			if err := cache.Delete(t.Context()); err != nil {
				t.Error(err)
			}
			for _, vm := range m.known(t).GetVms() {
				if vm.GetFreeMemory() != 4*managedRegion {
					t.Errorf("VM %s has %d bytes free", vm.GetId(), vm.GetFreeMemory())
				}
			}
			for len(m.events) > 0 {
				harmless(<-m.events)
			}
		})
	}
}
