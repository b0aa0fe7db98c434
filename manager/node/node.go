package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
	"github.com/redykv/redykv/server"
)

// Options configure a node.
type Options struct {
	// ID is the VM's id. Two servers that run have different ones.
	ID string
	// Memory is what the node lends, in bytes.
	Memory uint64
	// Sparse is as in [server.Options].
	Sparse bool
	// Cores bounds the server threads of all caches together; 0: one-sided
	// access only.
	Cores uint32
	// Distance is the number of switches between the node and its clients; 0: not known.
	Distance uint32
	// Price is the price of all the memory; a cache pays for its part.
	Price plan.Price
	// Transport is mem, shm, tcp or verbs. Default: tcp.
	Transport string
	// Listen is the host:port of the control API. Default: a free port of
	// 127.0.0.1.
	Listen string
	// FabricListen is the address at which the fabric listens, in the transport's form.
	// Default: a free port of 127.0.0.1 for tcp; else the transport's choice.
	FabricListen string
	// FabricTLS configures TLS of the tcp transport; clients need a matching one. Default:
	// no TLS.
	FabricTLS *tls.Config
	// ClientTimeout is as in [server.Options].
	ClientTimeout time.Duration
	// ControlTLS configures TLS of the control API, as net/http uses it. The manager
	// (manager.Options.ServerTLS) and clients (redytier.Config.FabricTLS) need a matching
	// one. Default: no TLS.
	ControlTLS *tls.Config
	// Pinning is as in [server.Options].
	Pinning server.Pinning
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger
}

// Node is a cache server with its control API on its own listener. Its methods are safe
// for concurrent use.
type Node struct {
	opts   Options
	server *server.Server
	http   *http.Server
	vm     VM
	start  atomic.Uint64             // vm.Start
	served chan error                // result of serving the control API
	leaves atomic.Pointer[time.Time] // deadline of Leave; nil: it was not called
}

// Start starts a cache server and its control API. More memory than the machine has is an
// [*api.CapacityError], unless it is lent sparsely.
func Start(opts Options) (_ *Node, err error) {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	opts.Transport = cmp.Or(opts.Transport, "tcp")
	opts.Listen = cmp.Or(opts.Listen, "127.0.0.1:0")
	if opts.FabricListen == "" && opts.Transport == "tcp" {
		opts.FabricListen = "127.0.0.1:0"
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("cache server: control API: %w", err)
	}
	secret := controltoken.NewSecret()
	s, err := server.New(server.Options{
		VM: opts.ID, Memory: int64(opts.Memory), Sparse: opts.Sparse, Cores: int(opts.Cores),
		Transport: opts.Transport, FabricAddr: opts.FabricListen, FabricTLS: opts.FabricTLS, ClientTimeout: opts.ClientTimeout, ControlSecret: secret, Pinning: opts.Pinning, Logger: opts.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	n := &Node{
		opts: opts, server: s, http: api.NewHTTPServer(s.Handler(), opts.Logger),
		vm: VM{
			ID: opts.ID, ControlURL: "http://" + ln.Addr().String(), Transport: s.Transport(), FabricAddr: s.FabricAddr(),
			Memory: opts.Memory, Free: opts.Memory, Cores: opts.Cores, Distance: opts.Distance, Price: opts.Price,
			Processor: machine.Processor(), Processors: uint32(runtime.NumCPU()), Secret: secret,
		},
		served: make(chan error, 1),
	}
	n.start.Store(uint64(time.Now().UnixMicro()))
	api.BoundWaiting(n.http, maxWaiting)
	serve := n.http.Serve
	if opts.ControlTLS != nil {
		n.http.TLSConfig = opts.ControlTLS.Clone()
		n.vm.ControlURL = "https://" + ln.Addr().String()
		serve = func(ln net.Listener) error { return n.http.ServeTLS(ln, "", "") }
	}
	go func() { n.served <- serve(ln) }()
	return n, nil
}

// maxWaiting bounds the connections of the control API that have sent no request yet, and
// those that wait for their next one. Clients have two at most, for half a minute.
const maxWaiting = 1024

func (o Options) check() error {
	total := MachineMemory()
	switch {
	case o.Memory == 0 || o.Memory > math.MaxInt64:
		return fmt.Errorf("cache server: memory %d: want a number of bytes above 0", o.Memory)
	case o.Memory > total && !o.Sparse:
		return &api.CapacityError{What: "memory of this machine", Asked: o.Memory, Available: total}
	case o.Cores > MaxCores:
		return fmt.Errorf("cache server: %d cores: want at most %d", o.Cores, MaxCores)
	case o.Distance > MaxDistance:
		return fmt.Errorf("cache server: distance of %d switches: want at most %d", o.Distance, MaxDistance)
	case o.Price < 0 || o.Price > plan.MaxPrice:
		return fmt.Errorf("cache server: price %v: want $0.00/h to %v", o.Price, plan.MaxPrice)
	}
	if err := dialable("listen address", o.Listen); err != nil {
		return err
	}
	if o.FabricListen != "" && (o.Transport == "tcp" || o.Transport == "verbs") {
		return dialable("fabric listen address", o.FabricListen)
	}
	return nil
}

// dialable refuses an address that clients cannot dial: a node's listen address is the one
// that it announces.
func dialable(what, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("cache server: %s: %w", what, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("cache server: %s %s: name the interface's own address, which clients can dial", what, addr)
	}
	return nil
}

// VM returns the node's properties, with the memory that is free now.
func (n *Node) VM() VM {
	vm := n.vm
	vm.Start = n.start.Load()
	// Status answers from memory and does not fail.
	if r, err := n.server.Status(context.Background(), connect.NewRequest(&serverv1.StatusRequest{})); err == nil {
		vm.Free = r.Msg.GetFreeMemory()
	}
	return vm
}

// String describes the node and its addresses in one line.
func (n *Node) String() string {
	return fmt.Sprintf("%s lends %v over %s at %s, control API %s",
		n.vm.ID, units.Size(n.vm.Memory), n.vm.Transport, n.vm.FabricAddr, n.vm.ControlURL)
}

// Close stops the server and its control API. Clients' queue pairs are disconnected.
func (n *Node) Close() error {
	err := errors.Join(n.server.Close(), n.http.Close())
	if served := <-n.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	n.served <- http.ErrServerClosed // for the next Close
	return err
}
