package manager

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
)

// The storm is a manager on virtual time whose leader is killed at commits and at words to
// servers, while clients contend for the memory of a few servers, repeat their calls, and
// send them late.
const (
	stormServers = 3
	stormClients = 5
	stormMemory  = 8 << 20
)

var (
	stormFor  = flag.Duration("storm.for", time.Duration(testrun.Scale(10, 10, 120))*time.Minute, "virtual time of each of TestStorm's seeds")
	stormSeed = flag.Uint64("storm.seed", 0, "TestStorm's first seed; 0: as testrun.Seed")
)

// storm has the servers' truth: what is lent, whatever the manager thinks. It carries the
// manager's calls of servers.
type storm struct {
	serverv1connect.UnimplementedCacheServerServiceHandler

	t     *testing.T
	m     *Manager
	store *catalogtest.Faulty
	serve http.Handler
	calm  bool // guarded by mu, as are the following

	words sync.WaitGroup // that come late

	mu      sync.Mutex
	rng     *rand.Rand
	lent    map[string]map[lease]uint64 // bytes by server
	used    map[lease]bool              // grants that clients use
	spent   map[lease]bool              // grants that were taken back
	address map[string]string           // by server; another one after each restart
	lives   uint64                      // number of servers that were started
	kills   map[string]int
}

// RoundTrip makes a call of a server. The leader may be killed before or after it, or be
// stopped before it, so that the word comes when there is another leader.
func (s *storm) RoundTrip(req *http.Request) (*http.Response, error) {
	before, after, late := s.chance(40), s.chance(40), s.chance(40)
	if before {
		s.kill("before a word")
		return nil, errors.New("the caller was killed")
	}
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req = req.Clone(context.WithoutCancel(req.Context()))
	req.RequestURI, req.Body = req.URL.RequestURI(), io.NopCloser(bytes.NewReader(text))
	if late {
		s.kill("and its word comes late")
		s.words.Go(func() {
			time.Sleep(5 * time.Second)
			s.serve.ServeHTTP(httptest.NewRecorder(), req)
		})
		return nil, errors.New("the caller was stopped")
	}
	answer := httptest.NewRecorder()
	s.serve.ServeHTTP(answer, req)
	if after {
		s.kill("after a word")
		return nil, errors.New("the caller was killed")
	}
	return answer.Result(), nil
}

// chance is true once in n times, until the storm ends.
func (s *storm) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.calm && s.rng.IntN(n) == 0
}

// kill ends the leader's term.
func (s *storm) kill(when string) {
	if l := s.m.led(); l != nil {
		s.mu.Lock()
		s.kills[when]++
		s.mu.Unlock()
		_ = l.office.Resign(context.Background())
	}
}

// Disconnect implements the servers' control API.
func (s *storm) Disconnect(_ context.Context, req *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := lease{req.Msg.GetCacheId(), req.Msg.GetGrant()}
	s.spent[g] = true
	if s.used[g] {
		s.t.Errorf("grant %v is taken back from a client that uses it", g)
	}
	held := s.lent[req.Header().Get(serverHeader)]
	if _, ok := held[g]; !ok {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no grant %v", g))
	}
	delete(held, g)
	return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
}

// Status implements the servers' control API.
func (s *storm) Status(_ context.Context, req *connect.Request[serverv1.StatusRequest]) (*connect.Response[serverv1.StatusResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &serverv1.StatusResponse{}
	for g, n := range s.lent[req.Header().Get(serverHeader)] {
		silent := time.Hour
		if s.used[g] {
			silent = 0
		}
		answer.Grants = append(answer.Grants, &serverv1.Grant{CacheId: g.cache, Id: g.grant, Bytes: n, SilentMs: silent.Milliseconds()})
	}
	return connect.NewResponse(answer), nil
}

// connect does what a client does with new grants. A server lends no more than it has.
func (s *storm) connect(cache string, grants []*managerv1.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range grants {
		is, held := lease{cache, g.GetId()}, s.lent[g.GetVm().GetId()]
		if s.spent[is] || g.GetVm().GetFabricAddr() != s.address[g.GetVm().GetId()] {
			continue // the server refuses it
		}
		s.used[is] = true
		held[is] = uint64(g.GetRegions()) * randomRegion
		var sum uint64
		for _, n := range held {
			sum += n
		}
		if sum > stormMemory {
			s.t.Errorf("server %s lends %d of %d bytes: %v", g.GetVm().GetId(), sum, stormMemory, held)
		}
	}
}

// leave does what a client does before it gives grants back.
func (s *storm) leave(cache string, grants []*managerv1.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range grants {
		delete(s.used, lease{cache, g.GetId()})
	}
}

// has reports whether a client's grant is still lent.
func (s *storm) has(cache string, g *managerv1.Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.lent[g.GetVm().GetId()][lease{cache, g.GetId()}]
	return ok
}

// beat is a server: it registers, sends heartbeats, is restarted and falls silent. Its calls, also
// those of earlier incarnations, come again.
func (s *storm) beat(ctx context.Context, i int) {
	id := fmt.Sprintf("pool-%d", i)
	start, former := uint64(1), uint64(0)
	for known := false; clock.Sleep(ctx, time.Second); {
		switch {
		case s.chance(300):
			s.mu.Lock()
			s.lent[id] = make(map[lease]uint64)
			s.lives++
			former, start = start, 1+s.lives
			s.address[id] = fmt.Sprintf("nowhere:%d", s.lives)
			s.mu.Unlock()
			known = false
		case s.chance(300):
			clock.Sleep(ctx, 20*time.Second)
		}
		l, err := s.m.leading()
		if err != nil {
			continue
		}
		deadline := func() time.Time { return time.Now().Add(5 * time.Second) }
		v := testVM(id, stormMemory, 8, "http://servers/"+id)
		if present := l.state.up(id); former > 0 && present != nil && present.Start == start && s.chance(10) {
			v.Start = former
			_ = l.state.register(v, "", deadline())
			_, err := l.state.heartbeat(id, former, v.Free, deadline)
			l.state.mu.Lock()
			if present.failed == startedAgain || err == nil {
				s.t.Errorf("late calls of server %s, number %d, have an effect on number %d", id, former, start)
			}
			l.state.mu.Unlock()
		}
		v.Start = start
		s.mu.Lock()
		v.FabricAddr = s.address[id]
		for _, n := range s.lent[id] {
			v.Free -= n
		}
		s.mu.Unlock()
		if known && !s.chance(50) {
			written, err := l.state.heartbeat(id, start, v.Free, deadline)
			if err == nil && written != nil {
				err = l.state.writer.wait(written)
			}
			known = err == nil
			continue
		}
		known = l.state.register(v, "", deadline()) == nil
	}
}

// stormClient is the client of one cache after the other.
type stormClient struct {
	*storm
	rng  *rand.Rand
	name string
}

// ask repeats a call until a leader answers it.
func ask[Q, A any](ctx context.Context, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q) (*A, error) {
	for {
		answer, err := call(ctx, connect.NewRequest(req))
		if err == nil {
			return answer.Msg, nil
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || !clock.Sleep(ctx, 100*time.Millisecond) {
			return nil, err
		}
	}
}

func (c *stormClient) live(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		c.cache(ctx, n)
		clock.Sleep(ctx, upTo(c.rng, 5*time.Second))
	}
}

// cache is the life of one cache.
func (c *stormClient) cache(ctx context.Context, n int) {
	calls := service{m: c.m}
	a := &managerv1.AllocateRequest{
		Capacity: uint64(1+c.rng.IntN(6)) * randomRegion, RegionSize: randomRegion, RequestId: fmt.Sprintf("%s, request number %d", c.name, n),
	}
	one, cancel := context.WithTimeout(ctx, 5*time.Second)
	first, err := ask(one, calls.Allocate, a)
	cancel()
	if err != nil {
		return
	}
	id, grants, holder := first.GetCacheId(), first.GetGrants(), uint64(0)
	cut := false // the client ended while it took the cache up, and perhaps had it already
	c.connect(id, grants)
	if c.rng.IntN(4) == 0 {
		if again, err := ask(ctx, calls.Allocate, a); err == nil && again.GetCacheId() != id {
			c.t.Errorf("a repeated Allocate of cache %s gives cache %s", id, again.GetCacheId())
		}
	}
	defer func() {
		c.leave(id, grants)
		if c.rng.IntN(4) > 0 || ctx.Err() != nil { // else its lease ends
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			_, err := ask(end, calls.Deallocate, &managerv1.DeallocateRequest{CacheId: id, Holder: &holder})
			if cut && connect.CodeOf(err) == connect.CodeFailedPrecondition {
				holder++
				_, err = ask(end, calls.Deallocate, &managerv1.DeallocateRequest{CacheId: id, Holder: &holder})
			}
			if err != nil {
				c.t.Errorf("cache %s is not deallocated: %v", id, err)
			}
			if _, err := ask(end, calls.Allocate, a); connect.CodeOf(err) != connect.CodeFailedPrecondition {
				c.t.Errorf("a late Allocate of cache %s: %v", id, err)
			}
		}
	}()
	var late *managerv1.SettleRequest
	for change := uint64(1); change < 40 && c.rng.IntN(12) > 0; change += 2 {
		if !clock.Sleep(ctx, upTo(c.rng, 4*time.Second)) {
			return
		}
		if _, err := ask(ctx, calls.Renew, &managerv1.RenewRequest{CacheId: id, Holder: holder}); connect.CodeOf(err) == connect.CodeNotFound {
			c.t.Errorf("cache %s is forgotten", id)
			return
		}
		if c.rng.IntN(4) == 0 {
			a := c.takeUp(ctx, id, holder, grants)
			if a == nil {
				cut = ctx.Err() != nil
				return
			}
			holder, change = a.GetHolder(), max(change, a.GetChange()+1)
		}
		leaves := c.rng.IntN(len(grants)) // a lost grant, or any
		for i, g := range grants {
			if !c.has(id, g) {
				leaves = i
			}
		}
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		more, err := ask(one, calls.Reallocate, &managerv1.ReallocateRequest{
			CacheId: id, Change: change, Holder: holder, Regions: grants[leaves].GetRegions(), AvoidVms: []string{grants[leaves].GetVm().GetId()},
		})
		cancel()
		if err != nil {
			continue
		}
		c.connect(id, more.GetGrants())
		if late != nil && c.rng.IntN(2) == 0 {
			_, _ = calls.Settle(ctx, connect.NewRequest(late)) // must not release what was given since
		}
		c.leave(id, grants[leaves:leaves+1])
		grants = append(append(append([]*managerv1.Grant{}, grants[:leaves]...), grants[leaves+1:]...), more.GetGrants()...)
		req := &managerv1.SettleRequest{CacheId: id, Change: change + 1, Holder: holder, Capacity: a.Capacity}
		for _, g := range grants {
			req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
		}
		for range 1 + c.rng.IntN(2) {
			if _, err := ask(ctx, calls.Settle, req); err != nil && ctx.Err() == nil {
				c.t.Errorf("cache %s settles: %v", id, err)
				return
			}
		}
		late = req
	}
}

// takeUp makes the next client the holder of a cache, by a call that may come twice. Late calls of
// the former one are refused. It returns nil if the storm has ended.
func (c *stormClient) takeUp(ctx context.Context, id string, holder uint64, grants []*managerv1.Grant) (a *managerv1.AttachResponse) {
	calls := service{m: c.m}
	req := &managerv1.AttachRequest{CacheId: id, RequestId: fmt.Sprintf("holder %d of %s", holder+1, id), Holder: holder}
	for range 1 + c.rng.IntN(2) {
		var err error
		if a, err = ask(ctx, calls.Attach, req); err != nil {
			if ctx.Err() == nil {
				c.t.Errorf("cache %s is not taken up: %v", id, err)
			}
			return nil
		}
	}
	same := func(g, o *managerv1.Grant) bool { return g.GetId() == o.GetId() }
	if a.GetHolder() != holder+1 || !slices.EqualFunc(a.GetGrants(), grants, same) {
		c.t.Errorf("cache %s: holder %d has %v, its former one had %v", id, a.GetHolder(), a.GetGrants(), grants)
	}
	_, err := ask(ctx, calls.Renew, &managerv1.RenewRequest{CacheId: id, Holder: holder})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition && ctx.Err() == nil {
		c.t.Errorf("cache %s: a renewal of its former holder: %v", id, err)
	}
	return a
}

// chaos kills leaders, makes commits fail, and reclaims servers.
func (s *storm) chaos(ctx context.Context, rng *rand.Rand) {
	for clock.Sleep(ctx, upTo(rng, 10*time.Second)) {
		at := s.store.Commits() + rng.IntN(5)
		switch n := rng.IntN(20); {
		case n < 5:
			s.store.At(at, 1, catalogtest.KillBefore)
		case n < 10:
			s.store.At(at, 1, catalogtest.KillAfter)
		case n < 12:
			s.store.At(at, 1+rng.IntN(4), catalogtest.Unavailable)
		case n < 14:
			s.store.At(at, 1, catalogtest.Unanswered)
		case n < 15:
			s.store.At(at, 1+rng.IntN(4), catalogtest.Full)
		case n < 19:
			s.kill("at any moment")
		default:
			calls := service{m: s.m}
			_, _ = calls.Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: fmt.Sprintf("pool-%d", rng.IntN(stormServers)), NoticeMs: 10_000}))
		}
	}
}

// TestStorm checks that in a storm no server lends more than it has, no call fails for good,
// and that afterwards no cache, grant or memory is left.
func TestStorm(t *testing.T) {
	seed := testrun.Seed(t, *stormSeed)
	for n := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed+n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runStorm(t, seed+n, *stormFor) })
		})
	}
}

func runStorm(t *testing.T, seed uint64, duration time.Duration) {
	s := &storm{
		t: t, store: catalogtest.NewFaulty(catalog.NewMemory()), rng: rand.New(rand.NewPCG(seed, 1)),
		lent: make(map[string]map[lease]uint64), spent: make(map[lease]bool), used: make(map[lease]bool), kills: make(map[string]int), address: make(map[string]string),
	}
	for i := range stormServers {
		id := fmt.Sprintf("pool-%d", i)
		s.lent[id], s.address[id] = make(map[lease]uint64), id+":1"
	}
	mux := http.NewServeMux()
	mux.Handle(serverv1connect.NewCacheServerServiceHandler(s))
	s.serve = route(mux)
	former := api.HTTPClient
	api.HTTPClient = &http.Client{Transport: s}
	defer func() { api.HTTPClient = former }()
	m, err := New(Options{store: s.store, Lease: time.Minute, Heartbeat: time.Second, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s.m = m
	ctx, stop := context.WithCancel(t.Context())
	beating, end := context.WithCancel(t.Context())
	var clients, servers sync.WaitGroup
	for i := range stormServers {
		servers.Go(func() { s.beat(beating, i) })
	}
	for i := range stormClients {
		c := &stormClient{storm: s, rng: rand.New(rand.NewPCG(seed, uint64(2+i))), name: fmt.Sprintf("client %d", i)}
		clients.Go(func() { c.live(ctx) })
	}
	clients.Go(func() { s.chaos(ctx, rand.New(rand.NewPCG(seed, 100))) })
	time.Sleep(duration)
	stop()
	clients.Wait()
	s.words.Wait()
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	time.Sleep(20 * time.Minute) // leases end, strays are found
	s.rest()
	t.Logf("seed %d: %d commits, killed %v", seed, s.store.Commits(), s.kills)
	end()
	servers.Wait()
	if err := m.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// rest checks that nothing is left after the last cache.
func (s *storm) rest() {
	l, err := s.m.leading()
	if err != nil {
		s.t.Errorf("no manager leads: %v", err)
		return
	}
	l.state.check(s.t)
	d := l.state.describe()
	if len(d.GetCaches()) > 0 || len(d.GetVms()) != stormServers {
		s.t.Errorf("left over: %v", d)
	}
	for _, v := range d.GetVms() {
		if !v.GetHealthy() || v.GetFreeMemory() != stormMemory {
			s.t.Errorf("VM %s: healthy %v, %d of %d bytes are free", v.GetId(), v.GetHealthy(), v.GetFreeMemory(), stormMemory)
		}
	}
	for id, held := range s.lent {
		if len(held) > 0 {
			s.t.Errorf("server %s still lends %v", id, held)
		}
	}
	var left bytes.Buffer
	_ = l.office.Load(context.Background(), func(r catalog.Record) error {
		if kind, _, ok := strings.Cut(r.Key, "/"); ok && kind+"/" != vmPrefix {
			fmt.Fprintln(&left, r.Key)
		}
		return nil
	})
	if left.Len() > 0 {
		s.t.Errorf("records are left:\n%s", &left)
	}
}
