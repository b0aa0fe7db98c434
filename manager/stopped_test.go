package manager

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/node"
)

// stopper stops a leader at one of its steps, a commit or a word to a server, as if its
// process were stopped there beyond its lease: another manager leads, and the step, or what
// follows it, is made when the process goes on.
type stopper struct {
	catalog.Store

	t       *testing.T
	servers http.RoundTripper
	after   bool          // it is stopped after the step, not before
	stop    chan struct{} // closed when the leader is stopped
	goOn    chan struct{} // closed when it goes on
	done    chan struct{} // closed when the step has been made

	mu   sync.Mutex
	left int // steps until the stop; -1: it has begun, none: there is none
	term catalog.Term
}

const none = -2

func (s *stopper) Campaign(ctx context.Context, url string) (catalog.Term, error) {
	t, err := s.Store.Campaign(ctx, url)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term = t
	return stoppedTerm{t, s}, nil
}

type stoppedTerm struct {
	catalog.Term
	of *stopper
}

func (t stoppedTerm) Commit(ctx context.Context, changes []catalog.Change) (err error) {
	t.of.step(func() { err = t.Term.Commit(ctx, changes) })
	return err
}

// RoundTrip makes a call of a server.
func (s *stopper) RoundTrip(req *http.Request) (r *http.Response, err error) {
	req = req.WithContext(context.WithoutCancel(req.Context()))
	stopped := s.step(func() { r, err = s.servers.RoundTrip(req) }) //nolint:bodyclose // it is returned
	if stopped && !s.after && (err != nil || r.StatusCode != http.StatusBadRequest) {
		s.t.Errorf("a server answers a leader that was stopped: %v, %v", r, err)
	}
	return r, err
}

// step makes a step. It reports whether the leader was stopped there.
func (s *stopper) step(do func()) bool {
	s.mu.Lock()
	stops, term := s.left == 0, s.term
	if s.left >= 0 {
		s.left--
	}
	s.mu.Unlock()
	if !stops {
		do()
		return false
	}
	if s.after {
		do()
	}
	close(s.stop) // first, as calls fail when the term has ended
	_ = term.Resign(context.Background())
	<-s.goOn
	if !s.after {
		do()
	}
	close(s.done)
	return true
}

// disarm makes that no later step stops the leader. It waits for a stop that has begun.
func (s *stopper) disarm() {
	s.mu.Lock()
	began := s.left == -1
	if !began {
		s.left = none
	}
	s.mu.Unlock()
	if began {
		<-s.stop
	}
}

func (s *stopper) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// A leader is stopped beyond its lease at each step of a cache's life. When it goes on it
// changes nothing: neither soon after another manager leads, nor much later.
func TestStoppedAtEachStep(t *testing.T) {
	for _, after := range []bool{false, true} {
		for _, soon := range []bool{false, true} {
			t.Run(fmt.Sprintf("after the step %v, goes on soon %v", after, soon), func(t *testing.T) {
				k := 0
				for ; stoppedLife(t, k, after, soon); k++ {
					if t.Failed() {
						t.Fatalf("stopped at step %d", k)
					}
				}
				t.Logf("%d steps", k)
			})
		}
	}
}

// pair are two managers on one catalog, the first of which is stopped, and servers.
type pair struct {
	*stopper
	soon          bool // the first manager goes on soon
	first, second *Manager
	nodes         []*node.Node
	calls         sync.WaitGroup // of the first manager
}

// stoppedLife is the life of a cache whose leader is stopped at the k-th step. It reports
// whether there was one.
func stoppedLife(t *testing.T, k int, after, soon bool) bool {
	store := catalog.NewMemory()
	s := &stopper{
		Store: store.Join(), t: t, after: after, stop: make(chan struct{}), goOn: make(chan struct{}), done: make(chan struct{}), left: none,
	}
	p := &pair{stopper: s, soon: soon}
	real := api.HTTPClient
	s.servers, api.HTTPClient = real.Transport, &http.Client{Transport: s}
	p.first, _ = serve(t, Options{Transport: "mem", store: s, Lease: time.Hour})
	api.HTTPClient = real
	awaitLeader(t, []*Manager{p.first})
	p.second, _ = serve(t, Options{Transport: "mem", store: store, Lease: time.Hour})
	for _, id := range []string{"a", "b", "c"} {
		p.nodes = append(p.nodes, startNode(t, id))
	}
	p.register(p.first)
	p.first.led().rest(t)
	s.mu.Lock()
	s.left = k
	s.mu.Unlock()
	p.live()
	return p.stopped()
}

// register registers the servers with a manager, which they obey from then on.
func (p *pair) register(m *Manager) {
	p.t.Helper()
	for _, n := range p.nodes {
		if _, err := n.Register(testContext(p.t), access.Dial(m.URL())); err != nil {
			p.t.Fatal(err)
		}
	}
}

// leads returns the manager that clients and servers reach.
func (p *pair) leads() *Manager {
	if !p.stopped() {
		return p.first
	}
	awaitLeader(p.t, []*Manager{p.second})
	p.register(p.second)
	return p.second
}

// tell makes a call as a client does: it gives up one that a stopped manager does not answer,
// and repeats it at the next leader.
func tell[Q, A any](p *pair, call func(service, context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q) *A {
	p.t.Helper()
	var answer *connect.Response[A]
	var err error
	if !p.stopped() {
		answered := make(chan struct{})
		p.calls.Go(func() {
			a, e := call(service{m: p.first}, testContext(p.t), connect.NewRequest(req))
			if !p.stopped() {
				answer, err = a, e
				close(answered)
			}
		})
		select {
		case <-answered:
			if err != nil {
				p.t.Fatal(err)
			}
			return answer.Msg
		case <-p.stop:
		}
	}
	if answer, err = call(service{m: p.leads()}, testContext(p.t), connect.NewRequest(req)); err != nil {
		p.t.Fatal(err)
	}
	if p.soon {
		p.resume()
	}
	return answer.Msg
}

// resume lets a stopped manager go on, and checks that it changes nothing.
func (p *pair) resume() {
	p.t.Helper()
	select {
	case <-p.goOn:
		return
	default:
	}
	before := p.all()
	close(p.goOn)
	<-p.done
	p.calls.Wait()
	for ctx := testContext(p.t); p.first.led() != nil; {
		if !clock.Sleep(ctx, time.Millisecond) {
			p.t.Fatal("the former leader does not end")
		}
	}
	if now := p.all(); now != before {
		p.t.Errorf("before the former leader went on:\n%s\nafterwards:\n%s", before, now)
	}
}

// rest waits until a manager has taken back all that it is to take back.
func (p *pair) rest(m *Manager) *leader {
	p.t.Helper()
	l := m.led()
	leaves := func() bool {
		l.state.mu.Lock()
		defer l.state.mu.Unlock()
		for _, g := range l.state.grants {
			if g.phase == leaving {
				return true
			}
		}
		return false
	}
	for ctx := testContext(p.t); leaves(); {
		if !clock.Sleep(ctx, time.Millisecond) {
			p.t.Fatal("grants are not taken back")
		}
	}
	l.rest(p.t)
	return l
}

// all returns all that the leader, the catalog and the servers have.
func (p *pair) all() string {
	l := p.rest(p.second)
	var all strings.Builder
	fmt.Fprintln(&all, l.state.describe())
	if err := l.office.Load(testContext(p.t), func(r catalog.Record) error {
		_, err := fmt.Fprintf(&all, "%s %d %x\n", r.Key, r.Version, r.Value)
		return err
	}); err != nil {
		p.t.Error(err)
	}
	for _, n := range p.nodes {
		grants, err := l.grantsOf(n.VM())
		fmt.Fprintln(&all, n.VM().ID, grants, err)
	}
	return all.String()
}

// live is the life of a cache: it is allocated, moves, leaves a server that is reclaimed, and
// replaces one that has failed.
func (p *pair) live() {
	p.t.Helper()
	const size = 1 << 20
	first := tell(p, service.Allocate, &managerv1.AllocateRequest{Capacity: 2 * size, RegionSize: size, RequestId: "a cache whose leader is stopped"})
	id, grants, change := first.GetCacheId(), first.GetGrants(), uint64(0)
	p.connect(grants)
	move := func() {
		p.t.Helper()
		change++
		more := tell(p, service.Reallocate, &managerv1.ReallocateRequest{
			CacheId: id, Change: change, Regions: 2, AvoidVms: []string{grants[0].GetVm().GetId()},
		})
		grants = more.GetGrants()
		p.connect(grants)
		change++
		req := &managerv1.SettleRequest{CacheId: id, Change: change, Capacity: 2 * size}
		for _, g := range grants {
			req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
		}
		tell(p, service.Settle, req)
	}
	move()
	tell(p, service.Reclaim, &managerv1.ReclaimRequest{VmId: grants[0].GetVm().GetId(), NoticeMs: time.Hour.Milliseconds()})
	move()
	if l := p.leads().led(); l != nil {
		gone := grants[0].GetVm().GetId()
		p.calls.Go(func() { l.fail(gone, nil, "its machine is gone") })
	}
	move()
	if !p.soon && p.stopped() {
		p.leads()
		p.resume()
	}
	tell(p, service.Deallocate, &managerv1.DeallocateRequest{CacheId: id})
	p.disarm()
	if p.stopped() {
		p.leads()
		p.resume()
	}
	l := p.rest(p.leads())
	for _, n := range p.nodes {
		if v := n.VM(); v.Free != v.Memory {
			p.t.Errorf("server %s still lends %d bytes", v.ID, v.Memory-v.Free)
		}
	}
	l.state.check(p.t)
	if caches, _ := l.state.size(); caches > 0 {
		p.t.Errorf("%d caches are left", caches)
	}
}

// connect does what a client does with new grants.
func (p *pair) connect(grants []*managerv1.Grant) {
	p.t.Helper()
	for _, g := range grants {
		server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, g.GetVm().GetControlUrl())
		_, err := server.Connect(testContext(p.t), connect.NewRequest(&serverv1.ConnectRequest{
			Terms: g.GetTerms(), Token: g.GetToken(), Configuration: &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 1},
		}))
		if err != nil {
			p.t.Fatal(err)
		}
	}
}
