package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
)

// grant is one loan of the server's memory to a cache. It is complete before it is
// published. The manager disconnects the grants of a cache whose lease has expired; the
// server itself ends a grant whose client is silent.
//
//	set up ──publish──► lent ──Disconnect, sweep──► ending ──► gone
//	   └──────────Disconnect, or a failure────────────────────►
//
// Another client of the cache may take a lent grant up: see takeup.go.
type grant struct {
	id         grantID
	server     *Server
	regionSize uint64        // bytes
	gone       chan struct{} // closed when everything is free again

	// Changed under Server.mu and mu together, and read under either.
	ticket redywire.Ticket
	holder uint64 // number of the client that has the ticket

	// Guarded by Server.mu. Memory and cores are taken from the beginning of Connect to
	// the end of Disconnect.
	keep   time.Duration // how long the grant stays while its client is silent; 0: for ever
	bytes  int64         // of Server.free; Release reduces it
	cores  int           // of Server.cores; Configure changes it
	lent   bool          // published
	over   bool          // disconnected: ending, or not to be published
	heard  bool          // the client has called or dialled since the last sweep
	silent time.Duration // for how long it had not, and nothing was in use, at the last sweep

	threadsMost uint32 // maximum of server threads, by the terms that the client has shown

	ctx    context.Context // ends with the grant
	cancel context.CancelFunc
	// running counts threads, connections and pulls. It is raised under mu and only while
	// the grant is open, so that end can wait for it.
	running sync.WaitGroup
	copying chan struct{} // one entry per pull that copies

	// changing serializes changes of regions and threads. It is locked before any other.
	changing   sync.Mutex
	configured uint64                    // number of the last change by Configure; guarded by changing
	fenced     uint64                    // holder before whom none accesses the regions any more; guarded by changing
	rings      ringUse                   // guarded by Server.rings
	memory     atomic.Pointer[memory]    // what server threads access, each inside its gate
	threads    atomic.Pointer[[]*thread] // those that connections turn to

	mu          sync.Mutex // guards the fields below
	open        bool
	regions     []fabric.Region           // of memory
	tokens      map[fabric.Token]struct{} // of regions
	limits      limits
	pulls       map[*pull]struct{}
	connections map[*conn]struct{}
	owners      map[uint64][]*conn // open connections, by owner
	dialled     int                // connections ever, to spread them over the threads
	ringBytes   int64
	// ringed is the context of connections with rings. It ends when no thread is left.
	ringed     context.Context
	stopRinged context.CancelFunc
}

// memory holds the regions' bytes, by number.
type memory [][]byte

// setUp allocates the regions that m asks for and starts the threads. On failure nothing
// is left.
func (g *grant) setUp(ctx context.Context, m *serverv1.ConnectRequest) error {
	g.ticket = newTicket()
	count := m.GetTerms().GetRegions()
	memory := make(memory, 0, count)
	g.tokens = make(map[fabric.Token]struct{}, count)
	for i := range count {
		err := ctx.Err()
		var region fabric.Region
		if err == nil {
			region, err = g.server.provider.Alloc(int(m.GetTerms().GetRegionSize()))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("region %d of %d: %w", i, count, err), free(g.regions))
		}
		g.regions = append(g.regions, region)
		g.tokens[region.Token()] = struct{}{}
		memory = append(memory, region.Bytes())
	}
	g.open, g.limits = true, limitsOf(m.Configuration, limits{})
	g.copying = make(chan struct{}, maxPulls)
	g.pulls, g.connections, g.owners = make(map[*pull]struct{}), make(map[*conn]struct{}), make(map[uint64][]*conn)
	g.memory.Store(&memory)
	g.ctx, g.cancel = context.WithCancel(g.server.ctx)
	g.ringed, g.stopRinged = context.WithCancel(g.ctx)
	g.threads.Store(new([]*thread))
	g.setThreads(threadsOf(m.Configuration))
	return nil
}

func newTicket() (t redywire.Ticket) {
	_, _ = rand.Read(t[:]) // never fails: crypto/rand ends the process instead
	return t
}

// setThreads replaces the threads by count new ones, unless there are as many already.
// Connections continue on the new ones; without threads, those with rings end. The caller
// holds changing, or the grant is not published yet.
func (g *grant) setThreads(count int) {
	old := *g.threads.Load()
	if len(old) == count {
		return
	}
	threads := make([]*thread, count)
	for i := range threads {
		threads[i] = g.startThread()
	}
	g.threads.Store(&threads)
	g.server.rings.divide(&g.rings, count)
	for _, t := range old {
		t.stop()
	}
	if count == 0 {
		g.mu.Lock()
		g.stopRinged()
		g.ringed, g.stopRinged = context.WithCancel(g.ctx)
		g.mu.Unlock()
	}
	for _, t := range old {
		<-t.ended
	}
}

// retain frees the regions from keep on and returns their size in bytes. When it returns,
// their tokens are revoked, pulls into them have ended, and no thread uses them. The caller
// holds changing.
func (g *grant) retain(keep int) (freed int64, err error) {
	g.mu.Lock()
	if keep >= len(g.regions) {
		g.mu.Unlock()
		return 0, nil
	}
	gone := g.regions[keep:]
	g.regions = g.regions[:keep:keep]
	for _, r := range gone {
		delete(g.tokens, r.Token())
	}
	left := (*g.memory.Load())[:keep:keep]
	g.memory.Store(&left)
	var ends []*pull
	for p := range g.pulls {
		if p.reaches >= keep {
			ends = append(ends, p)
		}
	}
	g.mu.Unlock()

	for _, p := range ends {
		p.cancel(errReleased)
	}
	for _, p := range ends {
		<-p.over
	}
	// A thread inside its gate may use the old table; one that enters now does not.
	for _, t := range *g.threads.Load() {
		t.gate.Drain()
	}
	for _, r := range gone {
		freed += int64(len(r.Bytes()))
	}
	return freed, free(gone)
}

// end closes the connections, stops threads and pulls, and frees the regions. It is called
// once, by the call that marked the grant as over.
func (g *grant) end() error {
	g.mu.Lock()
	g.open = false
	g.mu.Unlock()
	g.cancel()
	g.changing.Lock() // waits for a change that runs; none begins afterwards
	defer g.changing.Unlock()
	g.running.Wait() // nothing accesses the regions afterwards
	return free(g.regions)
}

func free(regions []fabric.Region) error {
	var err error
	for _, r := range regions {
		err = errors.Join(err, r.Close())
	}
	return err
}

// limits bound the rings of a grant's connections.
type limits struct {
	batch, depth int   // of a connection's rings, in requests and in slots
	rings        int64 // bytes of all connections' rings
}

const (
	// maxConnections bounds the queue pairs of one grant, and the dials of a server that wait for their
	// owners' earlier connections to end; further ones are not accepted yet.
	maxConnections = 1024
	// fewConnections is the least number of connections with rings that a grant has room
	// for, however few client threads its configuration has.
	fewConnections = 64
)

// limitsOf returns the limits of configuration c, which never shrink the memory for rings.
// There is room for six connections per client thread: one for its session, one for a session
// of the application, twice as many while these connect again, and more while new client
// threads replace the old ones.
func limitsOf(c *managerv1.Configuration, before limits) limits {
	l := limits{batch: int(c.GetBatchSize()), depth: int(c.GetQueueDepth())}
	count := min(max(6*int64(c.GetClientThreads()), fewConnections), maxConnections)
	l.rings = max(count*ringBytes(l.batch, l.depth), before.rings)
	return l
}

// grantID names a grant. A cache may have several grants on a server, one of them with an
// empty name.
type grantID struct{ cache, grant string }

func (id grantID) String() string {
	if id.grant == "" {
		return "cache " + id.cache
	}
	return "cache " + id.cache + ", grant " + id.grant
}

// reserve takes the memory and cores of a grant from the free ones. After a nil error the
// caller must call calls.Done.
func (s *Server) reserve(m *serverv1.ConnectRequest) (*grant, error) {
	t := m.GetTerms()
	g := &grant{
		id: grantID{t.GetCacheId(), t.GetGrant()}, server: s, regionSize: t.GetRegionSize(), keep: keepOf(t),
		holder: t.GetHolder(), fenced: t.GetHolder(),
		bytes: int64(t.GetRegions()) * int64(t.GetRegionSize()), cores: threadsOf(m.Configuration), threadsMost: t.GetCores(),
		gone: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("server is closing"))
	}
	if s.spent.has(g.id) {
		return nil, s.notLent(g.id)
	}
	if other := s.grants[g.id]; other != nil {
		other.heard = true
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("%v already has regions on this server", g.id))
	}
	if err := s.takeCores(g.id, g.cores, 0); err != nil {
		return nil, err
	}
	if g.bytes > s.free {
		s.cores += g.cores
		return nil, s.short(g.id, t)
	}
	s.free -= g.bytes
	s.grants[g.id] = g
	s.calls.Add(1)
	return g, nil
}

// keepOf returns how long a grant is kept while its client is silent.
func keepOf(t *managerv1.Terms) time.Duration { return time.Duration(t.GetKeepMs()) * time.Millisecond }

// takeCores reserves cores for a grant that has some already. Called under mu.
func (s *Server) takeCores(id grantID, threads, has int) error {
	if threads-has > s.cores {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%v asks for %d server threads: %d of %d cores are free",
			id, threads, s.cores+has, s.opts.Cores))
	}
	s.cores -= threads - has
	return nil
}

// short is the error for a request that does not fit in memory; its detail says how much is
// left. Called under mu.
func (s *Server) short(id grantID, t *managerv1.Terms) error {
	want := fmt.Errorf("%v asks for %v: at most %v of %v are free",
		id, units.Size(t.Regions)*units.Size(t.RegionSize), units.Size(s.free), units.Size(s.opts.Memory))
	if t.RegionSize > uint64(s.opts.Memory) {
		want = fmt.Errorf("%v asks for regions of %v: the server lends %v in all", id, units.Size(t.RegionSize), units.Size(s.opts.Memory))
	}
	err := connect.NewError(connect.CodeResourceExhausted, want)
	if detail, derr := connect.NewErrorDetail(s.status()); derr == nil {
		err.AddDetail(detail)
	}
	return err
}

func (s *Server) unreserve(g *grant) {
	s.mu.Lock()
	s.free += g.bytes
	s.cores += g.cores
	delete(s.grants, g.id)
	s.mu.Unlock()
	close(g.gone)
}

// publish makes a grant reachable, unless it was disconnected while it was set up: a client
// that gave up may have deallocated its cache.
func (s *Server) publish(ctx context.Context, g *grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("server is closing")
	case g.over:
		return errors.New("the grant was disconnected while it was set up")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	g.lent, g.heard = true, true
	s.admitBy(g)
	return nil
}

// admitBy lets connections begin that show the grant's ticket, or the one for reading. Called under mu.
func (s *Server) admitBy(g *grant) { s.tickets[g.ticket], s.tickets[g.ticket.Reading()] = g, g }

// retract refuses connections that show the grant's tickets. Called under mu.
func (s *Server) retract(g *grant) {
	delete(s.tickets, g.ticket)
	delete(s.tickets, g.ticket.Reading())
}

// find returns a lent grant if the ticket is correct. It counts as a word of the client.
func (s *Server) find(id grantID, ticket []byte) (*grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[id]
	if g == nil || !g.lent || g.over {
		return nil, s.notLent(id)
	}
	if err := g.admits(ticket); err != nil {
		return nil, err
	}
	g.heard = true
	return g, nil
}

// admits checks the ticket of a grant that is or was lent.
func (g *grant) admits(ticket []byte) error {
	if subtle.ConstantTimeCompare(ticket, g.ticket[:]) == 0 {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("wrong ticket for %v", g.id))
	}
	return nil
}

// notLent is the error of a call about a grant that is not lent. Called under mu.
func (s *Server) notLent(id grantID) error {
	if s.spent.has(id) {
		return ended(id)
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("no regions are lent to %v", id))
}

// ended is the error of a call about a grant that has ended. Its memory is lost.
func ended(id grantID) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("%v was taken back", id))
}
