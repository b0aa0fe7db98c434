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
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/node"
)

// stopper stops a leader at one of its steps as if its process were stopped there beyond its
// lease: another manager leads, and the step, or what follows it, is made when the process
// goes on.
type stopper struct {
	injector

	t     *testing.T
	after bool          // it is stopped after the step, not before
	stop  chan struct{} // closed when the leader is stopped
	goOn  chan struct{} // closed when it goes on
	done  chan struct{} // closed when the step has been made
}

func newStopper(t *testing.T, store catalog.Store, after bool) *stopper {
	s := &stopper{t: t, after: after, stop: make(chan struct{}), goOn: make(chan struct{}), done: make(chan struct{})}
	s.injector = injector{Store: store, servers: api.HTTPClient.Transport, at: s.halt, left: none}
	return s
}

// halt makes the step at which the leader is stopped.
func (s *stopper) halt(do func() error) {
	if s.after {
		_ = do() // the caller has its error
	}
	s.mu.Lock()
	term := s.term
	s.mu.Unlock()
	close(s.stop) // first, as calls fail when the term has ended
	_ = term.Resign(context.Background())
	<-s.goOn
	if !s.after {
		if err := outdated(do()); err != nil {
			s.t.Error(err)
		}
	}
	close(s.done)
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
		testrun.Receive(s.t, "the leader stops", s.stop)
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
	s := newStopper(t, store.Join(), after)
	p := &pair{stopper: s, soon: soon}
	real := api.HTTPClient
	api.HTTPClient = &http.Client{Transport: s}
	p.first, _ = serve(t, Options{Transport: "mem", store: s, Lease: time.Hour})
	api.HTTPClient = real
	awaitLeader(t, []*Manager{p.first})
	p.second, _ = serve(t, Options{Transport: "mem", store: store, Lease: time.Hour})
	for _, id := range []string{"a", "b", "c"} {
		p.nodes = append(p.nodes, startNode(t, id))
	}
	p.register(p.first)
	p.first.led().rest(t)
	s.choose(k)
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
	type reply struct {
		answer *connect.Response[A]
		err    error
	}
	if !p.stopped() {
		replies := make(chan reply, 1)
		p.calls.Go(func() {
			a, err := call(service{m: p.first}, testContext(p.t), connect.NewRequest(req))
			replies <- reply{a, err}
		})
		select {
		case r := <-replies:
			if p.stopped() { // as if it had been lost on the way
				break
			}
			if r.err != nil {
				p.t.Fatal(r.err)
			}
			return r.answer.Msg
		case <-p.stop:
		}
	}
	answer, err := call(service{m: p.leads()}, testContext(p.t), connect.NewRequest(req))
	if err != nil {
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
	testrun.Receive(p.t, "the stopped leader ends", p.done)
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
	for ctx := testContext(p.t); l.state.takesBack(); {
		if !clock.Sleep(ctx, time.Millisecond) {
			p.t.Fatal("grants are not taken back")
		}
	}
	l.rest(p.t)
	return l
}

// takesBack reports whether grants are being taken back.
func (c *state) takesBack() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.grants {
		if g.phase == leaving {
			return true
		}
	}
	return false
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
		grants, err := l.grantsOf(context.Background(), n.VM())
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
	connectAll(p.t, grants)
	move := func() {
		p.t.Helper()
		change++
		more := tell(p, service.Reallocate, &managerv1.ReallocateRequest{
			CacheId: id, Change: change, Regions: 2, AvoidVms: []string{grants[0].GetVm().GetId()},
		})
		grants = more.GetGrants()
		connectAll(p.t, grants)
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
	m := p.leads()
	if l := m.led(); l != nil {
		gone := grants[0].GetVm().GetId()
		if m == p.first { // it may be stopped there
			p.calls.Go(func() { l.fail(gone, nil, "its machine is gone") })
		} else {
			l.fail(gone, nil, "its machine is gone")
		}
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

// connectAll does what a client does with new grants.
func connectAll(t *testing.T, grants []*managerv1.Grant) {
	t.Helper()
	for _, g := range grants {
		server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, g.GetVm().GetControlUrl())
		testrun.UntilNil(t, func() error {
			_, err := server.Connect(testContext(t), connect.NewRequest(&serverv1.ConnectRequest{
				Terms: g.GetTerms(), Token: g.GetToken(), Configuration: &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 1},
			}))
			if err != nil && !obeysAnother(err) {
				t.Fatal(err)
			}
			return err
		})
	}
}

// obeysAnother reports whether a server has refused a new leader's word: it obeys the former one for as
// long as that is not silent for its bound.
func obeysAnother(err error) bool {
	return strings.Contains(err.Error(), "the server obeys another one")
}
