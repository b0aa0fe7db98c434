package access

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/memhttp"
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
	s := httptest.NewServer(serving(p))
	t.Cleanup(s.Close)
	return p, s
}

// serving returns the handler of a manager's calls.
func serving(m managerv1connect.ManagerServiceHandler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(managerv1connect.NewManagerServiceHandler(m))
	return mux
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

// A manager that hangs takes neither the whole deadline of a call, nor for ever from one that
// has none.
func TestHungManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, called, over := new(memhttp.Network), make(chan struct{}, 8), make(chan struct{})
		defer close(over)
		network.Serve("hung", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			called <- struct{}{}
			<-over
		}))
		leader := &player{}
		leader.leads.Store(true)
		network.Serve("leader", serving(leader))
		ctx, cancel := context.WithTimeout(t.Context(), 3*suspicion)
		defer cancel()
		dial := func() Client {
			client, err := dial("http://hung,http://leader", Credentials{}, "http://", &http.Client{Transport: network.From("client")})
			if err != nil {
				t.Fatal(err)
			}
			return client
		}
		r, err := dial().Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: "c"}))
		if err != nil || r.Msg.LeaseMs != 7 {
			t.Error(r, err)
		}
		<-called
		d, err := dial().Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: "c"}))
		if err != nil || !d.Msg.GetExisted() {
			t.Error(d, err)
		}
		<-called
	})
}

func (p *player) Deallocate(context.Context, *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error) {
	return connect.NewResponse(&managerv1.DeallocateResponse{Existed: true}), nil
}

// A call that takes long, because there is no memory yet, is not repeated while its manager
// runs.
func TestSlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, checked := new(memhttp.Network), make(chan struct{}, 8)
		slow := &slowPlayer{checked: checked}
		mux := serving(slow)
		mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) { checked <- struct{}{} })
		network.Serve("slow", mux)
		network.Serve("other", serving(&player{}))
		client, err := dial("http://slow,http://other", Credentials{}, "http://", &http.Client{Transport: network.From("client")})
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Allocate(t.Context(), connect.NewRequest(&managerv1.AllocateRequest{Capacity: 1}))
		if err != nil || r.Msg.GetCacheId() != "c" || slow.calls.Load() != 1 {
			t.Error(r, err, slow.calls.Load())
		}
	})
}

// slowPlayer answers after it was asked twice whether it runs.
type slowPlayer struct {
	managerv1connect.UnimplementedManagerServiceHandler
	checked <-chan struct{}
	calls   atomic.Int32
}

func (p *slowPlayer) Allocate(context.Context, *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	p.calls.Add(1)
	<-p.checked
	<-p.checked
	return connect.NewResponse(&managerv1.AllocateResponse{CacheId: "c"}), nil
}

func (p *player) Watch(ctx context.Context, _ *connect.Request[managerv1.WatchRequest], stream *connect.ServerStream[managerv1.WatchResponse]) error {
	if err := stream.Send(&managerv1.WatchResponse{}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// A stream of a manager that hangs ends when calls go to another one.
func TestStreamOfHungManager(t *testing.T) {
	a, atA := play(t)
	b, atB := play(t)
	a.leads.Store(true)
	client, err := DialWith(atA.URL+","+atB.URL, Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Watch(t.Context(), connect.NewRequest(&managerv1.WatchRequest{}))
	if err != nil || !stream.Receive() {
		t.Fatal(err)
	}
	a.leads.Store(false)
	b.leads.Store(true)
	if _, err := client.Renew(t.Context(), connect.NewRequest(&managerv1.RenewRequest{CacheId: "c"})); err != nil {
		t.Fatal(err)
	}
	if stream.Receive() || stream.Err() == nil || t.Context().Err() != nil {
		t.Errorf("the stream goes on: %v", stream.Err())
	}
	if err := stream.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
