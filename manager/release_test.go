package manager

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
)

// waiting is a registered server that answers Disconnect when its peer has been
// asked, too.
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

// A server that is slow to give a cache back keeps no other from doing so: one
// deadline for all of them would fail the healthy ones, with the caches of others.
func TestSlowServerHoldsUpNobody(t *testing.T) {
	m, client := serve(t, Options{})
	a, b := make(chan struct{}), make(chan struct{})
	for id, w := range map[string]waiting{"a": {asked: a, peer: b}, "b": {asked: b, peer: a}} {
		_, handler := serverv1connect.NewCacheServerServiceHandler(w)
		web := httptest.NewServer(handler)
		t.Cleanup(web.Close)
		if err := m.catalog.register(testVM(id, 2<<20, 0, web.URL), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := allocateBytes(t, client, 4<<20) // on both
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	for _, v := range m.catalog.describe().GetVms() {
		if !v.GetHealthy() || v.GetFreeMemory() != 2<<20 {
			t.Errorf("VM %v", v)
		}
	}
	if n := len(m.catalog.describe().GetVms()); n != 2 {
		t.Errorf("%d of 2 VMs are left", n)
	}
}
