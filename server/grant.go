package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
)

// lease is what one cache has of this server under one grant. It is whole before
// it is published.
type lease struct {
	id     grantID
	ticket redywire.Ticket
	server *Server

	ctx    context.Context // ends with the lease
	cancel context.CancelFunc
	// running counts threads, connections and pulls. It is raised under mu and
	// only while the lease is open, so that end can wait for it.
	running sync.WaitGroup

	// changing is held by whoever takes regions away or replaces threads, and is
	// taken before any other lock.
	changing sync.Mutex
	// memory is that of the regions: what server threads read and write, each
	// inside its gate.
	memory atomic.Pointer[memory]
	// threads are those that connections turn to.
	threads atomic.Pointer[[]*thread]

	mu          sync.Mutex
	open        bool
	regions     []fabric.Region // of memory
	limits      limits
	pulls       map[*pull]struct{}
	connections int
	owners      map[uint64][]*conn // open connections, by owner
	dialled     int                // connections ever, to spread them over the threads
	ringBytes   int64
	// ringed is the context of connections with rings: it ends when there is no
	// thread left to serve them.
	ringed     context.Context
	stopRinged context.CancelFunc
}

// memory is the regions' bytes, by number.
type memory [][]byte

// newLease allocates the regions that m asks for and starts the threads. On
// failure nothing is left.
func (s *Server) newLease(ctx context.Context, m *serverv1.ConnectRequest) (*lease, error) {
	l := &lease{
		id: grantID{m.CacheId, m.Grant}, server: s,
		open: true, limits: limitsOf(m.Configuration, limits{}), pulls: make(map[*pull]struct{}), owners: make(map[uint64][]*conn),
	}
	if _, err := rand.Read(l.ticket[:]); err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	memory := make(memory, 0, m.Regions)
	for i := range m.Regions {
		err := ctx.Err()
		var region fabric.Region
		if err == nil {
			region, err = s.provider.Alloc(int(m.RegionSize))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("region %d of %d: %w", i, m.Regions, err), free(l.regions))
		}
		l.regions = append(l.regions, region)
		memory = append(memory, region.Bytes())
	}
	l.memory.Store(&memory)
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	l.ringed, l.stopRinged = context.WithCancel(l.ctx)
	l.threads.Store(new([]*thread))
	l.setThreads(threadsOf(m.Configuration))
	return l, nil
}

// setThreads replaces the threads by count new ones, unless there are as many
// already. Connections go over to the new ones; those with rings end where there
// are none. The caller holds changing, or has the lease to itself.
func (l *lease) setThreads(count int) {
	old := *l.threads.Load()
	if len(old) == count {
		return
	}
	threads := make([]*thread, count)
	for i := range threads {
		threads[i] = l.startThread()
	}
	l.threads.Store(&threads)
	for _, t := range old {
		t.stop()
	}
	if count == 0 {
		l.mu.Lock()
		l.stopRinged()
		l.ringed, l.stopRinged = context.WithCancel(l.ctx)
		l.mu.Unlock()
	}
	for _, t := range old {
		<-t.ended
	}
}

// retain frees the regions from keep on, and returns how many bytes they were.
// Their tokens are revoked, pulls into them have ended, and no thread uses them
// any more when it returns. The caller holds changing.
func (l *lease) retain(keep int) (freed int64, err error) {
	l.mu.Lock()
	if keep >= len(l.regions) {
		l.mu.Unlock()
		return 0, nil
	}
	gone := l.regions[keep:]
	l.regions = l.regions[:keep:keep]
	left := (*l.memory.Load())[:keep:keep]
	l.memory.Store(&left)
	var ends []*pull
	for p := range l.pulls {
		if p.reaches >= keep {
			ends = append(ends, p)
		}
	}
	l.mu.Unlock()

	for _, p := range ends {
		p.cancel(errReleased)
	}
	for _, p := range ends {
		<-p.over
	}
	// A thread that is inside its gate may have seen the memory as it was; one
	// that comes in from now on does not.
	for _, t := range *l.threads.Load() {
		t.gate.Drain()
	}
	for _, r := range gone {
		freed += int64(len(r.Bytes()))
	}
	return freed, free(gone)
}

// size is the number of regions and connections.
func (l *lease) size() (regions, connections int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.regions), l.connections
}

// end closes the connections, stops threads and pulls and frees the regions.
// Whoever made an end of its tenant calls it, so it runs once.
func (l *lease) end() error {
	l.mu.Lock()
	l.open = false
	l.mu.Unlock()
	l.cancel()
	l.changing.Lock() // what changes it now is done soon; nothing changes it after
	defer l.changing.Unlock()
	l.running.Wait() // nobody touches the regions any more
	return free(l.regions)
}

func free(regions []fabric.Region) error {
	var err error
	for _, r := range regions {
		err = errors.Join(err, r.Close())
	}
	return err
}

// limits are what connections of a lease may ask for.
type limits struct {
	batch, depth int   // of a connection's rings, in requests and in slots
	rings        int64 // bytes of all connections' rings together
}

const (
	// maxConnections bounds the queue pairs of one lease.
	maxConnections = 1024
	// fewConnections is for how many connections with rings a lease has room
	// even if its configuration names fewer client threads.
	fewConnections = 64
)

// limitsOf are those of configuration c that replaces another, and never less than
// there was. There is room for the rings of six times its client threads: each has a
// session behind the callback API, and the application one of its own; both dial again
// before they hang up, as do the threads that take over from those before.
func limitsOf(c *managerv1.Configuration, before limits) limits {
	l := limits{batch: int(c.GetBatchSize()), depth: int(c.GetQueueDepth())}
	count := min(max(6*int64(c.GetClientThreads()), fewConnections), maxConnections)
	l.rings = max(count*ringBytes(l.batch, l.depth), before.rings)
	return l
}

// budget is a number of bytes that many take from. Safe for concurrent use.
type budget struct{ left atomic.Int64 }

func (b *budget) take(n int64) bool {
	for {
		left := b.left.Load()
		if n > left {
			return false
		}
		if b.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

func (b *budget) give(n int64) { b.left.Add(n) }

// grantID names what one server lends to one cache at one time. A cache may have
// several grants on a server; that without a name is one of them.
type grantID struct{ cache, grant string }

func (id grantID) String() string {
	if id.grant == "" {
		return "cache " + id.cache
	}
	return "cache " + id.cache + ", grant " + id.grant
}

// tenant is a grant's place in Server.leases: its name, memory and threads are
// taken from the beginning of Connect to the end of Disconnect. Guarded by
// Server.mu, but for what does not change.
//
//	set up ──publish──► lent ──Disconnect──► ending ──► gone
//	   └──────────Disconnect, or a failure─────────────►
type tenant struct {
	id      grantID
	bytes   int64         // of Server.free; Release makes it less
	threads int           // of Server.cores; Configure changes it
	lease   *lease        // nil while being set up
	over    bool          // was disconnected: ending, or not to be published
	gone    chan struct{} // closed when everything is free again
}

// reserve takes what m asks for out of what is free. After a nil error the
// caller owes a calls.Done.
func (s *Server) reserve(m *serverv1.ConnectRequest) (*tenant, error) {
	t := &tenant{
		id:    grantID{m.CacheId, m.Grant},
		bytes: int64(m.Regions) * int64(m.RegionSize), threads: threadsOf(m.Configuration),
		gone: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("server is closing"))
	}
	if s.spent.has(t.id) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("%v was taken back", t.id))
	}
	if s.leases[t.id] != nil {
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("%v has regions here already", t.id))
	}
	if err := s.takeCores(t.id, t.threads, 0); err != nil {
		return nil, err
	}
	if t.bytes > s.free {
		s.cores += t.threads
		return nil, s.short(t.id, m)
	}
	s.free -= t.bytes
	s.leases[t.id] = t
	s.calls.Add(1)
	return t, nil
}

// takeCores takes the cores for as many threads beyond those that a grant has.
// Under mu.
func (s *Server) takeCores(id grantID, threads, has int) error {
	if threads-has > s.cores {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%v wants %d server threads, %d of %d cores are free",
			id, threads, s.cores+has, s.opts.Cores))
	}
	s.cores -= threads - has
	return nil
}

// short is the refusal of what does not fit in memory; its detail says how much
// is left. Under mu.
func (s *Server) short(id grantID, m *serverv1.ConnectRequest) error {
	want := fmt.Errorf("%v wants %v, at most %v of %v are free",
		id, units.Size(m.Regions)*units.Size(m.RegionSize), units.Size(s.free), units.Size(s.opts.Memory))
	if m.RegionSize > uint64(s.opts.Memory) {
		want = fmt.Errorf("%v wants regions of %v, all memory is %v", id, units.Size(m.RegionSize), units.Size(s.opts.Memory))
	}
	err := connect.NewError(connect.CodeResourceExhausted, want)
	if detail, derr := connect.NewErrorDetail(s.status()); derr == nil {
		err.AddDetail(detail)
	}
	return err
}

func (s *Server) unreserve(t *tenant) {
	s.mu.Lock()
	s.free += t.bytes
	s.cores += t.threads
	delete(s.leases, t.id)
	s.mu.Unlock()
	close(t.gone)
}

// publish makes a lease reachable, unless nobody wants it any more: a client that
// gave up may have had its cache deallocated while this server was setting it up.
func (s *Server) publish(ctx context.Context, t *tenant, l *lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("server is closing")
	case t.over:
		return errors.New("disconnected while it connected")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	t.lease = l
	s.tickets[l.ticket] = l
	return nil
}

// lent returns the grant of that name, if it is lent and the ticket is its own. Under mu.
func (s *Server) lent(id grantID, ticket []byte) (*tenant, error) {
	t := s.leases[id]
	if t == nil || t.lease == nil || t.over {
		return nil, notLent(id)
	}
	return t, t.admits(ticket)
}

// admits says whether a caller with this ticket may change a grant that is lent,
// or was.
func (t *tenant) admits(ticket []byte) error {
	if subtle.ConstantTimeCompare(ticket, t.lease.ticket[:]) == 0 {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("ticket is not that of %v", t.id))
	}
	return nil
}

func notLent(id grantID) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("no regions are lent to %v", id))
}
