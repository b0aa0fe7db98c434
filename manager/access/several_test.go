package access

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
)

// player is a manager that leads, or stands by and names the leader.
type player struct {
	managerv1connect.UnimplementedManagerServiceHandler
	leads  atomic.Bool
	leader atomic.Pointer[string]
	calls  atomic.Int32
}

func (p *player) Renew(context.Context, *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error) {
	p.calls.Add(1)
	if p.leads.Load() {
		return connect.NewResponse(&managerv1.RenewResponse{LeaseMs: 7}), nil
	}
	err := connect.NewError(connect.CodeUnavailable, errors.New("stands by"))
	detail := &managerv1.NotLeaderDetail{}
	if url := p.leader.Load(); url != nil {
		detail.LeaderUrl = *url
	}
	if d, e := connect.NewErrorDetail(detail); e == nil {
		err.AddDetail(d)
	}
	return nil, err
}

func play(t *testing.T) (*player, *httptest.Server) {
	t.Helper()
	p := &player{}
	mux := http.NewServeMux()
	mux.Handle(managerv1connect.NewManagerServiceHandler(p))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return p, s
}

// A client follows the leader among the managers that it was given, and no other.
func TestSeveralManagers(t *testing.T) {
	a, atA := play(t)
	b, atB := play(t)
	other, atOther := play(t)
	other.leads.Store(true)
	client, err := DialWith(atA.URL+", "+atB.URL, Credentials{Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	renew := func() {
		t.Helper()
		r, err := client.Renew(t.Context(), connect.NewRequest(&managerv1.RenewRequest{CacheId: "c"}))
		if err != nil || r.Msg.LeaseMs != 7 {
			t.Fatal(r, err)
		}
	}
	a.leader.Store(&atOther.URL)
	b.leads.Store(true)
	renew()
	if n := other.calls.Load(); n != 0 {
		t.Errorf("a manager that was not given got %d calls", n)
	}
	b.leads.Store(false)
	b.leader.Store(&atA.URL)
	a.leads.Store(true)
	renew()
	atA.Close() // nobody answers there
	b.leads.Store(true)
	renew()
	b.leads.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{})); err == nil {
		t.Error("a call succeeded although no manager leads")
	}
}

// A manager that hangs does not take the whole deadline of a call.
func TestHungManager(t *testing.T) {
	called, over := make(chan struct{}, 8), make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called <- struct{}{}
		<-over
	}))
	defer hung.Close()
	defer close(over)
	leader, atLeader := play(t)
	leader.leads.Store(true)
	client, err := DialWith(hung.URL+","+atLeader.URL, Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	r, err := client.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: "c"}))
	if err != nil || r.Msg.LeaseMs != 7 || len(called) == 0 {
		t.Error(r, err, len(called))
	}
}
