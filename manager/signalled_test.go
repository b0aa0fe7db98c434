package manager

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
)

// stint is the life of a cache.
type stint struct {
	*twins
	id      string
	grants  []*managerv1.Grant
	more    []*managerv1.Grant // of a Reallocate that is not settled
	change  uint64
	reclaim string // the VM that is reclaimed
}

// operations are those of a cache's life, in order.
var operations = []struct {
	name string
	do   func(*stint)
}{
	{"Allocate", (*stint).allocate},
	{"Reallocate", (*stint).reallocate},
	{"Settle", (*stint).settle},
	{"reclaim", func(s *stint) {
		s.reclaim = s.grants[0].GetVm().GetId()
		insist(s.twins, access.Client.Reclaim, &managerv1.ReclaimRequest{VmId: s.reclaim, NoticeMs: time.Hour.Milliseconds()})
		s.reallocate()
		s.settle()
	}},
	{"replacement", func(s *stint) {
		s.restart(s.grants[0].GetVm().GetId())
		s.reallocate()
		s.settle()
	}},
	{"Deallocate", (*stint).deallocate},
}

// stintRegions are those of a cache, in MiB.
const stintRegions = 2

func (s *stint) allocate() { s.allocateRegions(stintRegions) }

func (s *stint) allocateRegions(n uint64) {
	a := insist(s.twins, access.Client.Allocate, &managerv1.AllocateRequest{
		Capacity: n << 20, RegionSize: 1 << 20, RequestId: fmt.Sprintf("cache number %09d", nextChange()),
	})
	s.id, s.grants = a.GetCacheId(), a.GetGrants()
	connectAll(s.t, s.grants)
}

func (s *stint) reallocate() {
	s.change++
	s.more = insist(s.twins, access.Client.Reallocate, &managerv1.ReallocateRequest{
		CacheId: s.id, Change: s.change, Regions: stintRegions, AvoidVms: []string{s.grants[0].GetVm().GetId()},
	}).GetGrants()
	connectAll(s.t, s.more)
}

func (s *stint) settle() {
	s.change++
	req := &managerv1.SettleRequest{CacheId: s.id, Change: s.change, Capacity: stintRegions << 20}
	for _, g := range s.more {
		req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
	}
	insist(s.twins, access.Client.Settle, req)
	s.grants, s.more = s.more, nil
}

func (s *stint) deallocate() {
	insist(s.twins, access.Client.Deallocate, &managerv1.DeallocateRequest{CacheId: s.id})
	s.id = ""
}

// signalled says where a leader is signalled.
type signalled struct {
	operation int // of operations
	step      int
	after     bool // the step, not before
	by        syscall.Signal
}

func (w signalled) String() string {
	return fmt.Sprintf("%v, step %d of %s, after it %v", w.by, w.step, operations[w.operation].name, w.after)
}

// run is the life of a cache whose leader is signalled. It reports whether there was such a
// step, and whether the leader has led until then.
func (p *twins) run(w signalled) (done, led bool) {
	s := &stint{twins: p}
	for i, o := range operations {
		if i != w.operation {
			o.do(s)
			continue
		}
		p.command(w.step, w.after, w.by)
		leader := p.leads
		o.do(s)
		p.rest()
		p.filled(s.id)
		done, led = leader.halted, leader.halted || leader == p.leads
		if done && w.by == syscall.SIGSTOP {
			p.resume(leader)
		}
	}
	insist(p, access.Client.Reclaim, &managerv1.ReclaimRequest{VmId: s.reclaim}) // it registers again
	p.awaitServers()
	p.rest()
	p.check()
	return done, led
}

// filled checks that the servers lend a cache, if there is one, what the catalog says, and that
// another cache can have all the other memory.
func (p *twins) filled(cache string) {
	p.t.Helper()
	var caches []string
	if cache != "" {
		caches = append(caches, cache)
	}
	p.check(caches...)
	other := &stint{twins: p}
	other.allocateRegions(p.free() >> 20)
	p.check(append(caches, other.id)...)
	other.deallocate()
	p.rest()
	p.check(caches...)
}

// someKills is the number of steps that are chosen for each signal: each takes some seconds. A soak has
// all steps, which takes four minutes.
const someKills = 4

// A leader's process is killed, or stopped beyond its lease, before or after each of its steps
// in each operation, and another one leads. The call succeeds when it is repeated, no memory is
// lent twice or leaked, no cache is stuck, and a former leader that goes on changes nothing.
func TestSignalledAtEachStep(t *testing.T) {
	for _, by := range []struct {
		name   string
		signal syscall.Signal
		lease  time.Duration
	}{
		{"killed", syscall.SIGKILL, 10 * time.Second}, // a manager at the same URL does not wait for its end
		{"stopped", syscall.SIGSTOP, 2 * etcdLease},   // its end is awaited
	} {
		t.Run(by.name, func(t *testing.T) { signalledAtEachStep(t, startTwins(t, by.lease), by.signal) })
	}
}

func signalledAtEachStep(t *testing.T, p *twins, by syscall.Signal) {
	run := func(w signalled) bool {
		t.Helper()
		for range 10 {
			done, led := p.run(w)
			if t.Failed() {
				t.Fatal(w)
			}
			if led {
				return done
			}
			t.Logf("%v: the leader was too slow for its lease", w)
		}
		t.Fatal("no manager keeps its lease")
		return false
	}
	if !testrun.Soak() {
		rng := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
		done := 0
		for tries := 0; done < someKills && tries < 20*someKills; tries++ {
			w := signalled{rng.IntN(len(operations)), rng.IntN(6), rng.IntN(2) == 0, by}
			if run(w) {
				done++
				t.Log(w)
			}
		}
		if done < someKills {
			t.Errorf("only %d of %d steps", done, someKills)
		}
		return
	}
	for _, after := range []bool{false, true} {
		for i, o := range operations {
			steps := 0
			for run(signalled{i, steps, after, by}) {
				steps++
			}
			t.Logf("%v, %s, after the step %v: %d steps", by, o.name, after, steps)
			if steps == 0 {
				t.Error("no step")
			}
		}
	}
}
