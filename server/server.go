package server

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/api/strictjson"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/redywire"
)

// Server lends one VM's memory. Its methods are safe for concurrent use.
type Server struct {
	opts     Options
	provider fabric.Provider
	listener fabric.Listener
	pins     *affinity.Set // of server threads
	counts   counters
	rings    rings

	ctx       context.Context // ends at Close
	cancel    context.CancelFunc
	waiting   chan struct{}  // one entry per dial that waits for its owner's earlier connections
	accepting sync.WaitGroup // the accept loop, and connections that it opens
	sweeping  sync.WaitGroup // sweepLoop

	// calls counts control calls that hold the provider's memory. It is raised under mu
	// while the server is open, so that Close can wait for it.
	calls sync.WaitGroup

	fencing sync.Mutex // held while a grant's regions move to other memory

	mu     sync.Mutex // guards the fields below, except allegiance
	closed bool
	free   int64 // bytes of opts.Memory that are not lent
	cores  int   // of opts.Cores, not used by threads
	grants map[grantID]*grant
	// networked is the provider behind network, the last modelled network of a pull.
	network   fabric.Model
	networked fabric.Provider
	tickets   map[redywire.Ticket]*grant // lent grants, by ticket and by ticket for reading
	spent     spent                      // grants that were taken back
	// sourceKeys check the sources of pulls. They are those of the last managers that the server has
	// obeyed, from the first to the last.
	sourceKeys []ed25519.PublicKey

	allegiance allegiance
}

var _ serverv1connect.CacheServerServiceHandler = (*Server)(nil)

// New starts a server. Its fabric address accepts queue pairs of caches that called Connect.
// The caller serves the control API with Handler.
func New(opts Options) (*Server, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	pins, err := affinity.Near(opts.Pinning)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	provider, err := transport.OpenWith(opts.Transport, transport.Options{TLS: opts.FabricTLS, Silence: opts.ClientTimeout, Sparse: opts.Sparse})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	// A connection answers at most one batch per slot of its ring.
	listener, err := provider.Listen(opts.FabricAddr, redywire.MaxDepth)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("server: listen at %q: %w", opts.FabricAddr, err), provider.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		opts: opts, provider: provider, listener: listener, pins: pins,
		ctx: ctx, cancel: cancel, waiting: make(chan struct{}, maxConnections),
		rings:   newRings(opts.RingMemory, opts.Cores),
		free:    opts.Memory,
		cores:   opts.Cores,
		grants:  make(map[grantID]*grant),
		tickets: make(map[redywire.Ticket]*grant),
		spent:   newSpent(),

		allegiance: allegiance{now: time.Now},
	}
	s.accepting.Go(s.acceptLoop)
	s.sweeping.Go(s.sweepLoop)
	return s, nil
}

// FabricAddr is the address that clients dial.
func (s *Server) FabricAddr() string { return s.listener.Addr() }

// Transport is the name of the fabric in use.
func (s *Server) Transport() string { return s.provider.Name() }

// maxMessage bounds the bytes of one request.
const maxMessage = 64 << 10

// leastCompressed is the size in bytes from which answers are compressed. Compressing the
// small reports of a pull costs more than everything else about them.
const leastCompressed = 1 << 10

// Handler serves the control API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(serverv1connect.NewCacheServerServiceHandler(s,
		connect.WithReadMaxBytes(maxMessage), connect.WithCompressMinBytes(leastCompressed),
		connect.WithInterceptors(connect.UnaryInterceptorFunc(s.admit)), strictjson.Option()))
	return mux
}

// Close ends all grants and frees their memory. Clients find their queue pairs disconnected.
// Closing again does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	var ends []*grant
	for _, g := range s.grants {
		if g.lent && !g.over {
			ends = append(ends, g)
		}
	}
	clear(s.grants)
	clear(s.tickets)
	s.mu.Unlock()

	s.cancel()
	err := s.listener.Close()
	s.accepting.Wait()
	s.sweeping.Wait()
	s.calls.Wait()
	for _, g := range ends {
		err = errors.Join(err, g.end())
	}
	if err = errors.Join(err, s.provider.Close()); err != nil {
		return fmt.Errorf("server: close: %w", err)
	}
	return nil
}

// Metrics are a server's counters since it started, and the memory of its rings. One-sided reads and writes bypass the
// server and are not counted.
type Metrics struct {
	Batches   uint64 // request batches executed
	Requests  uint64 // requests in them
	Refused   uint64 // requests outside the grant's regions, answered with an error
	Malformed uint64 // connections that ended because of a malformed message
	Rejected  uint64 // queue pairs refused when they dialled
	Pulled    uint64 // bytes copied from other servers
	Expired   uint64 // grants taken back because their clients were silent
	RingBytes int64  // message rings in use
}

type counters struct {
	batches, requests, refused, malformed, rejected, pulled, expired atomic.Uint64
}

// Metrics returns the counts; safe for concurrent use.
func (s *Server) Metrics() Metrics {
	malformed := s.counts.malformed.Load()
	if p, ok := s.provider.(interface{ Malformed() uint64 }); ok {
		malformed += p.Malformed() // found by the transport
	}
	return Metrics{
		Batches:   s.counts.batches.Load(),
		Requests:  s.counts.requests.Load(),
		Refused:   s.counts.refused.Load(),
		Malformed: malformed,
		Rejected:  s.counts.rejected.Load(),
		Pulled:    s.counts.pulled.Load(),
		Expired:   s.counts.expired.Load(),
		RingBytes: s.rings.inUse(),
	}
}
