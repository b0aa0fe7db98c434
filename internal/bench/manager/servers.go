package manager

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
)

// vmMemory is what each VM lends, and regionSize the capacity of each cache.
const (
	regionSize = 1 << 20
	spare      = 4 // regions of a VM for each that it has on average
)

// vm is a cache server that this process plays.
type vm struct {
	id     string
	url    string // of its control API
	memory uint64
	price  int64 // in millionths of a dollar an hour; 0: none is known
	dead   atomic.Bool
}

// servers are all of them, behind one listener: the path of a URL names the server.
type servers struct {
	serverv1connect.UnimplementedCacheServerServiceHandler
	all  map[string]*vm
	list []*vm
	http *http.Server
}

func newServers(ctx context.Context, s *Spec) (*servers, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("control API of the servers: %w", err)
	}
	f := &servers{all: map[string]*vm{}}
	memory := uint64(spare*(s.Caches+s.VMs-1)/s.VMs) * regionSize
	for i := range s.VMs {
		id := fmt.Sprintf("played-%05d", i)
		v := &vm{id: id, url: fmt.Sprintf("http://%v/%s", ln.Addr(), id), memory: memory}
		if s.Prices {
			v.price = 100_000 + int64(i)
		}
		f.all[id] = v
		f.list = append(f.list, v)
	}
	_, calls := serverv1connect.NewCacheServerServiceHandler(f, connect.WithCompressMinBytes(1<<10)) // as real servers
	f.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if v := f.all[id]; v == nil || v.dead.Load() {
			panic(http.ErrAbortHandler) // breaks the connection, as a server that is gone does
		}
		r.URL.Path = "/" + rest
		calls.ServeHTTP(w, r)
	})}
	go func() { _ = f.http.Serve(ln) }() // until close
	return f, nil
}

func (f *servers) close() error { return f.http.Close() }

// Disconnect takes a grant back, of which there is nothing to take.
func (*servers) Disconnect(context.Context, *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
}

// Release is as Disconnect.
func (*servers) Release(context.Context, *connect.Request[serverv1.ReleaseRequest]) (*connect.Response[serverv1.ReleaseResponse], error) {
	return connect.NewResponse(&serverv1.ReleaseResponse{}), nil
}

// Status says that no client has connected.
func (*servers) Status(context.Context, *connect.Request[serverv1.StatusRequest]) (*connect.Response[serverv1.StatusResponse], error) {
	return connect.NewResponse(&serverv1.StatusResponse{}), nil
}

// registration is the call by which a server announces itself.
func (v *vm) registration() *managerv1.RegisterRequest {
	return &managerv1.RegisterRequest{
		Vm: &managerv1.Vm{
			Id: v.id, Start: 1, ControlUrl: v.url, Transport: "tcp", FabricAddr: "127.0.0.1:1", Memory: v.memory, FreeMemory: v.memory, Healthy: true, PriceMicros: v.price,
		},
		ControlSecret: []byte("secret-of-" + v.id),
	}
}
