package manager

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/clock"
)

// waiting is a registered server that answers Disconnect only when its peer has been
// called, too.
type waiting struct {
	serverv1connect.UnimplementedCacheServerServiceHandler
	asked, peer chan struct{}
}

func (w waiting) Disconnect(ctx context.Context, _ *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	close(w.asked)
	select {
	case <-w.peer:
		return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Releases run concurrently: a slow server must not use up the time of others, as healthy
// ones would fail then, with their other caches.
func TestSlowServerHoldsUpNobody(t *testing.T) {
	m, client := serve(t, Options{})
	a, b := make(chan struct{}), make(chan struct{})
	for id, w := range map[string]waiting{"a": {asked: a, peer: b}, "b": {asked: b, peer: a}} {
		_, handler := serverv1connect.NewCacheServerServiceHandler(w)
		web := httptest.NewServer(handler)
		t.Cleanup(web.Close)
		if err := m.led().state.register(testVM(id, 2<<20, 0, web.URL), "", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := allocateBytes(t, client, 4<<20) // on both servers
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	for _, v := range m.led().state.describe().GetVms() {
		if !v.GetHealthy() || v.GetFreeMemory() != 2<<20 {
			t.Errorf("VM %v", v)
		}
	}
	if n := len(m.led().state.describe().GetVms()); n != 2 {
		t.Errorf("%d of 2 VMs are left", n)
	}
}

// slow is a server that answers the first Disconnects too late.
type slow struct {
	serverv1connect.UnimplementedCacheServerServiceHandler
	late, asked atomic.Int32
}

func (s *slow) Disconnect(context.Context, *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	if s.asked.Add(1) <= s.late.Load() {
		return nil, connect.NewError(connect.CodeDeadlineExceeded, errors.New("too slow"))
	}
	return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
}

// A server that is slow to release a cache keeps its other caches, and the memory stays
// reserved until it is released.
func TestSlowServerKeepsOtherCaches(t *testing.T) {
	m, client := serve(t, Options{Heartbeat: time.Millisecond, Silence: time.Hour})
	s := &slow{}
	s.late.Store(3)
	_, handler := serverv1connect.NewCacheServerServiceHandler(s)
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	if err := m.led().state.register(testVM("a", 2<<20, 0, web.URL), "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	first, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	second, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: first.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	d, err := m.led().state.describeCache(second.GetCacheId())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.GetEvents()) > 0 {
		t.Fatalf("events %v", d.GetEvents())
	}
	for ctx := testContext(t); ; {
		if _, err = allocateBytes(t, client, 1<<20); err == nil || !clock.Sleep(ctx, time.Millisecond) {
			break
		}
	}
	if err != nil || s.asked.Load() <= s.late.Load() {
		t.Errorf("memory had again after %d calls: %v", s.asked.Load(), err)
	}
	m.led().state.check(t)
}
