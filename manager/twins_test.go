package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/node"
)

// twins are two managers in processes of their own, on one catalog in etcd, and cache servers.
type twins struct {
	t        *testing.T
	etcd     *clientv3.Client
	catalog  string
	managers []*process
	leads    *process // of managers
	servers  []*cacheServer
	orders   int
	calls    sync.WaitGroup // of processes that were stopped
}

// twinsPrefix is the prefix of the catalog's keys.
const twinsPrefix = "/twins/"

func startTwins(t *testing.T, lease time.Duration) *twins {
	t.Helper()
	server := etcdtest.Start(t, etcdtest.Options{})
	p := &twins{t: t, etcd: server.Client("", ""), catalog: "etcd://" + server.Address + twinsPrefix + "?lease=" + lease.String()}
	t.Cleanup(func() {
		for _, m := range p.managers {
			if t.Failed() {
				t.Logf("manager at %s:\n%s", m.url, m.Output.Bytes())
			}
		}
		_ = p.etcd.Close()
	})
	var urls []string
	for range 2 {
		m := startProcess(t, p.catalog, etcdtest.FreeAddress(t))
		p.managers, urls = append(p.managers, m), append(urls, m.url)
	}
	p.lead()
	for _, id := range []string{"a", "b", "c"} {
		s := &cacheServer{managers: access.Dial(strings.Join(urls, ","))}
		s.start(t, id)
		p.servers = append(p.servers, s)
	}
	p.awaitServers()
	return p
}

// cacheServer is a server that follows the leader.
type cacheServer struct {
	*node.Node
	managers access.Client
	end      func()
}

func (s *cacheServer) start(t *testing.T, id string) {
	t.Helper()
	s.Node = startNode(t, id)
	ctx, cancel := context.WithCancel(context.Background())
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		if err := s.Announce(ctx, s.managers, nil); err != nil {
			t.Error(err)
		}
	}()
	s.end = func() {
		cancel()
		testrun.Receive(t, "the server ends", announced)
	}
	t.Cleanup(s.end)
}

// restart ends a server with all that it lends, and starts it anew.
func (p *twins) restart(id string) {
	p.t.Helper()
	for _, s := range p.servers {
		if s.VM().ID != id {
			continue
		}
		s.end()
		if err := s.Close(); err != nil {
			p.t.Error(err)
		}
		s.start(p.t, id)
	}
}

// free returns the memory that can be lent, as the leader says.
func (p *twins) free() (bytes uint64) {
	p.t.Helper()
	for _, v := range insist(p, access.Client.Describe, &managerv1.DescribeRequest{}).GetVms() {
		if v.GetHealthy() && !v.GetLeaving() {
			bytes += v.GetFreeMemory()
		}
	}
	return bytes
}

// awaitServers waits until all memory of all servers can be lent.
func (p *twins) awaitServers() {
	p.t.Helper()
	var all uint64
	for _, s := range p.servers {
		all += s.VM().Memory
	}
	for ctx := testContext(p.t); p.free() != all; {
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			p.t.Fatalf("%d of %d bytes can be lent", p.free(), all)
		}
	}
}

// lead waits until a manager leads. One that has killed itself is started again, and stands by.
func (p *twins) lead() {
	p.t.Helper()
	for ctx := testContext(p.t); ; {
		for i, m := range p.managers {
			select {
			case <-m.acts:
				m.halted = true
			case <-m.Ended:
				if m.halted = m.halted || len(m.acts) > 0; !m.halted {
					p.t.Fatal("a manager has ended by itself")
				}
				p.managers[i] = startProcess(p.t, p.catalog, strings.TrimPrefix(m.url, "http://"))
				continue
			default:
			}
			if m.halted {
				continue
			}
			if _, err := m.client.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{})); err == nil {
				p.leads = m
				return
			}
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			p.t.Fatal("no manager leads")
		}
	}
}

// command gives an order to the leader, and waits until it is carried out. If the leader is
// signalled meanwhile, or leads no more, the next one gets the order.
func (p *twins) command(steps int, after bool, s syscall.Signal) {
	p.t.Helper()
	for ctx := testContext(p.t); ; p.lead() {
		p.orders++
		_, _ = fmt.Fprintln(p.leads.orders, p.orders, steps, after, int(s)) // it may have ended
		for waits := true; waits; {
			select {
			case text := <-p.leads.done:
				var number int
				var leads bool
				if _, err := fmt.Sscan(text, &number, &leads); err != nil {
					p.t.Fatal(err)
				}
				if waits = number != p.orders; !waits && leads {
					return
				}
			case <-p.leads.acts:
				p.leads.halted, waits = true, false
			case <-ctx.Done():
				p.t.Fatal("an order is not carried out")
			}
		}
	}
}

// rest waits until the leader has nothing to do, after which it is not signalled.
func (p *twins) rest() {
	p.t.Helper()
	p.command(none, false, 0)
}

// insist makes a call as a client does: when the leader's process has ended or is stopped, it
// repeats the call at the next leader.
func insist[Q, A any](p *twins, call func(access.Client, context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q) *A {
	p.t.Helper()
	for ctx := testContext(p.t); ; p.lead() {
		l := p.leads
		var answer *connect.Response[A]
		var err error
		answered := make(chan struct{})
		p.calls.Go(func() {
			defer close(answered)
			answer, err = call(l.client, ctx, connect.NewRequest(req))
		})
		select {
		case <-answered:
			if err == nil {
				return answer.Msg
			}
			if !heldUp(err) && !obeysAnother(err) || ctx.Err() != nil {
				p.t.Fatal(err)
			}
		case <-l.acts:
			l.halted = true
		}
	}
}

// resume lets the manager go on that was stopped, and checks that it changes nothing.
func (p *twins) resume(m *process) {
	p.t.Helper()
	p.rest()
	before := p.all()
	m.Signal(syscall.SIGCONT)
	ctx := testContext(p.t)
	select {
	case wrong := <-m.goesOn:
		if wrong != "<nil>" {
			p.t.Error(wrong)
		}
	case <-ctx.Done():
		p.t.Fatal("a manager does not go on")
	}
	p.calls.Wait()
	for {
		_, err := m.client.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
		if detailOf(err).GetLeaderUrl() == p.leads.url {
			break
		}
		if !clock.Sleep(ctx, time.Millisecond) {
			p.t.Fatalf("the former leader: %v", err)
		}
	}
	m.halted = false
	p.rest()
	if now := p.all(); now != before {
		p.t.Errorf("before the former leader went on:\n%s\nafterwards:\n%s", before, now)
	}
}

// all returns all that the catalog and the servers have.
func (p *twins) all() string {
	var all strings.Builder
	for _, r := range p.read("") {
		ended := false // an ended cache is forgotten at any time
		if strings.HasPrefix(r.Key, "record/"+cachePrefix) {
			var ca catalogv1.Cache
			if err := proto.Unmarshal(r.Value, &ca); err != nil {
				p.t.Fatal(err)
			}
			ended = ca.GetEnded()
		}
		if r.Key == "txn" { // the leader may confirm its term at any time
			term, _, _ := strings.Cut(string(r.Value), " ")
			fmt.Fprintln(&all, "term", term)
			continue
		}
		if !ended && !strings.HasPrefix(r.Key, "leader/") { // a candidacy changes nothing
			fmt.Fprintf(&all, "%s %d %x\n", r.Key, r.Version, r.Value)
		}
	}
	fmt.Fprintln(&all, p.lent())
	return all.String()
}

// read returns what the catalog has under a prefix, without that.
func (p *twins) read(prefix string) (all []catalog.Record) {
	p.t.Helper()
	r, err := p.etcd.Get(testContext(p.t), twinsPrefix+prefix, clientv3.WithPrefix())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		all = append(all, catalog.Record{Key: strings.TrimPrefix(string(kv.Key), twinsPrefix+prefix), Value: kv.Value, Version: kv.Version})
	}
	return all
}

// loan is what a server lends to a cache.
type loan struct{ server, cache, grant string }

// lent returns the bytes of all that the servers lend.
func (p *twins) lent() map[loan]uint64 {
	p.t.Helper()
	all := make(map[loan]uint64)
	for _, s := range p.servers {
		v := s.VM()
		var grants []*serverv1.Grant
		testrun.Until(p.t, "the server obeys the leader", func() bool { // it still obeys a silent one for a while
			i := insist(p, access.Client.Heartbeat, &managerv1.HeartbeatRequest{VmId: v.ID, Start: v.Start, FreeMemory: v.Free}).GetIncarnation()
			l := &leader{Manager: &Manager{servers: api.HTTPClient}, self: controltoken.Incarnation{Epoch: i.GetEpoch(), ID: i.GetId()}}
			var err error
			if grants, err = l.grantsOf(context.Background(), v); err != nil && !obeysAnother(err) {
				p.t.Fatal(err)
			}
			return err == nil
		})
		for _, g := range grants {
			all[loan{v.ID, g.GetCacheId(), g.GetId()}] = g.GetBytes()
		}
	}
	return all
}

// check checks that there are these caches, and that the servers lend what the catalog says.
func (p *twins) check(caches ...string) {
	p.t.Helper()
	all := &contents{decisions: make(map[string]*catalogv1.Decisions), versions: make(map[string]int64)}
	for _, r := range p.read("record/") {
		if err := all.add(r); err != nil {
			p.t.Fatal(err)
		}
	}
	ids, granted := make(map[uint64]string), make(map[loan]uint64)
	for _, v := range all.vms {
		ids[v.GetOrder()] = v.GetVm().GetId()
	}
	for _, g := range all.grants {
		granted[loan{ids[g.GetVmOrder()], g.GetCacheId(), g.GetId()}] = uint64(g.GetRegions()) * g.GetRegionSize()
	}
	if lent := p.lent(); !maps.Equal(lent, granted) {
		p.t.Errorf("the servers lend %v, and the catalog says %v", lent, granted)
	}
	var known []string
	for _, ca := range all.caches {
		if !ca.GetEnded() {
			known = append(known, ca.GetId())
		}
	}
	slices.Sort(known)
	slices.Sort(caches)
	if !slices.Equal(known, caches) || len(all.decisions) != len(caches) || len(all.vms) != len(p.servers) {
		p.t.Errorf("the catalog has caches %v, want %v, %d decisions, and VMs %v", known, caches, len(all.decisions), all.vms)
	}
}
