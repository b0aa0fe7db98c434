package redytier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/memhttp"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
)

// starved is a provider that cuts connections on demand. Its next dials or allocations fail
// for lack of local resources.
type starved struct {
	*fabric.Faulty
	mu           sync.Mutex
	dials, rings []error // errors of the next ones, in order
	failed       int
}

func (p *starved) wrap(behind fabric.Provider) fabric.Provider {
	p.Faulty = fabric.WithFaults(behind, fabric.FaultOptions{})
	return p
}

// next removes and returns the first of a list of errors.
func (p *starved) next(of *[]error) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(*of) > 0 {
		err, *of = (*of)[0], (*of)[1:]
		p.failed++
	}
	return err
}

var errTakesLong = errors.New("takes too long")

func (p *starved) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	switch err := p.next(&p.dials); {
	case errors.Is(err, errTakesLong):
		<-ctx.Done()
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("dial: %w", os.NewSyscallError("socket", err))
	}
	return p.Faulty.Dial(ctx, addr, private, depth)
}

func (p *starved) Alloc(size int) (fabric.Region, error) {
	if err := p.next(&p.rings); err != nil {
		return nil, fmt.Errorf("alloc: %w", err)
	}
	return p.Faulty.Alloc(size)
}

// A connection is cut, and another one cannot be opened at first: this process lacks resources, or
// the network resets connections. No memory is lost.
func TestFailuresOnTheWayAreNotTheServers(t *testing.T) {
	for name, tc := range map[string]struct {
		configuration Configuration
		dials, rings  []error
	}{
		"descriptors":       {configuration: configurations[0], dials: []error{syscall.EMFILE, syscall.ENFILE, syscall.EMFILE}},
		"memory":            {configuration: configurations[0], dials: []error{syscall.ENOMEM, syscall.ENOBUFS}},
		"ports":             {configuration: configurations[2], dials: []error{syscall.EADDRNOTAVAIL}},
		"rings":             {configuration: configurations[2], rings: []error{syscall.ENOMEM, errors.New("no pages"), syscall.EMFILE}},
		"time":              {configuration: configurations[0], dials: []error{errTakesLong}},
		"resets":            {configuration: configurations[0], dials: []error{syscall.ECONNRESET, io.EOF, syscall.EPIPE}},
		"refusals":          {configuration: configurations[2], dials: []error{syscall.ECONNREFUSED, syscall.ECONNREFUSED, syscall.ECONNREFUSED}},
		"no route":          {configuration: configurations[0], dials: []error{syscall.EHOSTUNREACH, syscall.ETIMEDOUT}},
		"one after another": {configuration: configurations[2], dials: []error{syscall.EMFILE, errTakesLong}, rings: []error{syscall.ENOMEM}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "mem", 1, 1<<20)
			p := &starved{}
			const size = 1 << 16
			cache := c.create(t, Config{
				Capacity: size, RegionSize: size, Configuration: tc.configuration, wrap: p.wrap,
				OnEvent: func(e Event) { t.Errorf("event %+v", e) },
			})
			content := bytes.Repeat([]byte{0xa5}, size)
			pump := newPump(t, cache, 2)
			pump.insist(content, 0)
			p.mu.Lock()
			p.dials, p.rings = tc.dials, tc.rings
			p.mu.Unlock()
			p.Set(fabric.FaultOptions{Cut: 1})
			pump.do(false, make([]byte, 8), 0, func(c device.Completion) {
				if !errors.Is(c.Err, ErrRegionUnavailable) {
					t.Errorf("over a connection that is cut: %v", c.Err)
				}
			})
			pump.drain()
			p.Set(fabric.FaultOptions{})
			for got := make([]byte, size); !bytes.Equal(got, content) && !t.Failed(); {
				pump.do(false, got, 0, func(c device.Completion) {
					if c.Err == nil && !bytes.Equal(got, content) {
						t.Error(testrun.WrongMark, "other bytes than were written")
					}
				})
				pump.drain()
			}
			if err := cache.Err(); err != nil {
				t.Error(err)
			}
			if want := len(tc.dials) + len(tc.rings); p.failed != want {
				t.Errorf("%d of %d attempts failed", p.failed, want)
			}
			pump.close()
		})
	}
}

// shutOut is a provider that has no descriptors for connections after a session's first one, until it is
// opened.
type shutOut struct {
	*fabric.Faulty
	open    atomic.Bool
	refused atomic.Int32
}

func (p *shutOut) wrap(behind fabric.Provider) fabric.Provider {
	p.Faulty = fabric.WithFaults(behind, fabric.FaultOptions{})
	return p
}

func (p *shutOut) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	if hello, err := redywire.DecodeHello(private); err == nil && hello.Generation > 0 && !p.open.Load() {
		p.refused.Add(1)
		return nil, fmt.Errorf("dial: %w", os.NewSyscallError("socket", syscall.EMFILE))
	}
	return p.Faulty.Dial(ctx, addr, private, depth)
}

// A failed connection may have an effect until the server has accepted a later one, also when its
// endpoint is replaced, or its session is closed, before this machine can open one. Close does not
// wait for that for ever.
func TestFailedConnectionsEnd(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for the end of Close's patience")
	for name, leave := range map[string]func(*testing.T, *Cache, *pump){
		"the endpoint is replaced": func(_ *testing.T, cache *Cache, _ *pump) {
			old := cache.table.Load().endpoints[0]
			again := &endpoint{grant: old.grant, fill: old.fill, batch: old.batch, depth: old.depth}
			cache.mu.Lock()
			cache.endpoints = append(cache.endpoints, again)
			cache.mu.Unlock()
			cache.removeEndpoints([]*endpoint{old})
		},
		"the session is closed": func(t *testing.T, _ *Cache, p *pump) { p.close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			c := newCluster(t, "mem", 1, 1<<20)
			p := &shutOut{}
			const size = 1 << 16
			cache := c.create(t, Config{Capacity: size, RegionSize: size, Configuration: Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 4}, wrap: p.wrap})
			pump := newPump(t, cache, 2)
			pump.connect()
			p.Set(fabric.FaultOptions{Cut: 1})
			pump.do(false, make([]byte, 8), 0, func(device.Completion) {})
			pump.drain()
			p.Set(fabric.FaultOptions{})
			g := cache.table.Load().grants()[0]
			leave(t, cache, pump)
			before := p.refused.Load()
			testrun.Until(t, "the server is asked for another connection", func() bool { return p.refused.Load() > before })
			if g.unsettled.Load() == 0 {
				t.Error("the server has not ended the failed connection, and it counts as if it had")
			}
			p.open.Store(true)
			testrun.Until(t, "the server has ended the failed connection", func() bool { return g.unsettled.Load() == 0 })
		})
	}
}

// A session is closed while a write is pending for longer than Close waits: the write may have an effect until
// the server has ended the connection.
func TestCloseLeavesPendingWrites(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for the end of Close's patience")
	c := newCluster(t, "mem", 1, 1<<20)
	p := &shutOut{}
	const size = 1 << 16
	cache := c.create(t, Config{Capacity: size, RegionSize: size, Configuration: Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 4}, wrap: p.wrap})
	pump := newPump(t, cache, 2)
	pump.connect()
	p.Set(fabric.FaultOptions{Delay: 1, MaxDelay: math.MaxInt}) // its completion does not come
	pump.do(true, make([]byte, 8), 0, func(device.Completion) {})
	if err := pump.s.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closing: %v", err)
	}
	g := cache.table.Load().grants()[0]
	if g.unsettled.Load() == 0 {
		t.Error("the server has not ended the connection, and it counts as if it had")
	}
	p.open.Store(true)
	testrun.Until(t, "the server has ended the connection", func() bool { return g.unsettled.Load() == 0 })
}

// counted counts dials.
type counted struct {
	fabric.Provider
	dials atomic.Int32
}

func (p *counted) wrap(behind fabric.Provider) fabric.Provider {
	p.Provider = behind
	return p
}

func (p *counted) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	p.dials.Add(1)
	return p.Provider.Dial(ctx, addr, private, depth)
}

// A VM that the manager has suspected for long dies, and no connection notices. The client
// still asks it, and asks at once when the manager reports the suspicion again.
func TestSuspectedForLong(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for silences")
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again=%v", again), func(t *testing.T) {
			t.Parallel() // it mostly waits
			c := newCluster(t, "shm", 1, 1<<20)
			var process *os.Process
			process, c.vms[0].ControlUrl = startChild(t, "shm")
			c.refuse = func(*managerv1.ReallocateRequest) error { return errors.New("no VM is left") }
			events := make(chan Event, 16)
			p := &counted{}
			timeout := time.Second // the server is asked five times less often
			if again {
				timeout = time.Hour
			}
			cache := c.create(t, Config{
				Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: configurations[2], ServerTimeout: timeout, suspicion: time.Nanosecond,
				wrap: p.wrap, OnEvent: func(e Event) { events <- e },
			})
			g := cache.table.Load().grants()[0]
			suspect := func(sequence uint64) {
				c.events <- &managerv1.WatchResponse{Sequence: sequence, Kind: managerv1.WatchResponse_KIND_VM_SUSPECTED, VmId: g.vm, Reason: "silence"}
			}
			for n := range int32(3) {
				asked := p.dials.Load()
				if n == 0 || again {
					suspect(uint64(n) + 1)
				}
				testrun.Until(t, "the server is asked again", func() bool { return p.dials.Load() > asked })
			}
			if again {
				return // the timeout is an hour
			}
			stop(t, process)
			if e := testrun.Receive(t, "the loss is reported", events); e.Kind != VMLost || e.VM != g.vm {
				t.Errorf("%+v", e)
			}
			if err := process.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The manager suspects a VM. Its memory is used as long as the VM answers this client, and is
// lost when it does not.
func TestSuspectedVM(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for silences")
	for _, state := range []bool{false, true} {
		t.Run(fmt.Sprintf("state=%v", state), func(t *testing.T) {
			t.Parallel() // it mostly waits
			c := newCluster(t, "shm", 1, 1<<20)
			var process *os.Process
			process, c.vms[0].ControlUrl = startChild(t, "shm")
			c.refuse = func(*managerv1.ReallocateRequest) error { return errors.New("no VM is left") }
			events := make(chan Event, 16)
			cache := c.create(t, Config{
				Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: configurations[2], ServerTimeout: 3 * time.Second,
				OnEvent: func(e Event) { events <- e },
			})
			g := cache.table.Load().grants()[0]
			m := &managerv1.WatchResponse{Sequence: 1, Kind: managerv1.WatchResponse_KIND_VM_SUSPECTED, VmId: g.vm, Reason: "silence"}
			if state {
				m = &managerv1.WatchResponse{Sequence: 1, Kind: managerv1.WatchResponse_KIND_STATE, State: &managerv1.Cache{
					Grants: []*managerv1.Grant{{Vm: &managerv1.Vm{Id: g.vm, Healthy: true, Suspected: true}}},
				}}
			}
			c.events <- m
			testrun.Until(t, "the client checks the VM", func() bool { return g.checking.Load() != nil })
			content(t, cache)
			if err := cache.Err(); err != nil {
				t.Errorf("a VM that answers: %v", err)
			}
			stop(t, process)
			if e := testrun.Receive(t, "the loss is reported", events); e.Kind != VMLost || e.VM != g.vm {
				t.Errorf("%+v", e)
			}
			if err := process.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The manager trusts a VM again, by an event or by the state of the cache. The client ends its
// check at once, even the probe that is under way, and a later suspicion begins another.
func TestTrustedAgain(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	p := &probes{asked: make(chan context.Context)}
	cache := c.create(t, Config{
		Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: configurations[0], ServerTimeout: time.Hour,
		wrap: p.wrap, OnEvent: func(e Event) { t.Errorf("event %+v", e) },
	})
	g := cache.table.Load().grants()[0]
	p.holds.Store(true)
	state := func(suspected bool) *managerv1.WatchResponse {
		return &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_STATE, State: &managerv1.Cache{
			Grants: []*managerv1.Grant{{Vm: &managerv1.Vm{Id: g.vm, Healthy: true, Suspected: suspected}}},
		}}
	}
	for _, trusted := range []*managerv1.WatchResponse{
		{Kind: managerv1.WatchResponse_KIND_VM_TRUSTED, VmId: g.vm}, state(false), {Kind: managerv1.WatchResponse_KIND_VM_TRUSTED, VmId: g.vm},
	} {
		c.events <- state(true)
		probe := testrun.Receive(t, "the client asks the server", p.asked)
		c.events <- trusted
		testrun.Receive(t, "the probe ends", probe.Done())
		if err := context.Cause(probe); !errors.Is(err, context.Canceled) {
			t.Errorf("a probe of a VM that is trusted again ends with %v", err)
		}
	}
	if err := cache.Err(); err != nil {
		t.Error(err)
	}
}

// probes is a provider that hands over the context of each dial, which fails when that ends.
type probes struct {
	fabric.Provider
	holds atomic.Bool
	asked chan context.Context
}

func (p *probes) wrap(behind fabric.Provider) fabric.Provider {
	p.Provider = behind
	return p
}

func (p *probes) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	if !p.holds.Load() {
		return p.Provider.Dial(ctx, addr, private, depth)
	}
	p.asked <- ctx
	<-ctx.Done()
	return nil, ctx.Err()
}

// onLiveness runs a test of a cache of one VM in a bubble of virtual time.
func onLiveness(t *testing.T, test func(t *testing.T, n *noticed, cache *Cache)) {
	const region = 16 << 10
	onNotice(t, scheduleMenu(region), func(t *testing.T, n *noticed) {
		cache, err := Create(t.Context(), n.client, n.config(Config{Capacity: 2 * region, RegionSize: region, Configuration: oneSided}))
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		test(t, n, cache)
		n.fabric.refuse(nil)
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// All connections end, and the server's fabric resets new ones for a while. Its memory is lost if
// that takes longer than two seconds, and the server does not answer its control API or takes
// longer still.
func TestResets(t *testing.T) {
	for name, tc := range map[string]struct {
		control bool          // it answers
		resets  time.Duration // 0: for ever
		lost    [2]time.Duration
	}{
		"shortly":                        {resets: 100 * time.Millisecond},
		"for almost two seconds":         {resets: 1700 * time.Millisecond},
		"for longer":                     {resets: time.Minute, lost: [2]time.Duration{reconnectTimeout - time.Millisecond, reconnectTimeout + time.Second}},
		"for longer, with a control API": {control: true, resets: 5 * time.Second},
		"for ever, with a control API":   {control: true, lost: [2]time.Duration{3 * reconnectTimeout, time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			onLiveness(t, func(t *testing.T, n *noticed, cache *Cache) {
				g := cache.table.Load().grants()[0]
				var silence sync.WaitGroup
				if !tc.control {
					silence.Go(func() { n.disturb(memhttp.Refused, -1, between(clientParty, g.vm), 10*time.Second) })
				}
				defer silence.Wait()
				began := time.Now()
				n.fabric.refuse(syscall.ECONNRESET)
				n.fabric.cutAll()
				if tc.resets > 0 {
					time.AfterFunc(tc.resets, func() { n.fabric.refuse(nil) })
				}
				if err := syncCall(t, cache.Read, make([]byte, 1), 0); !errors.Is(err, ErrRegionUnavailable) {
					t.Errorf("over a connection that has ended: %v", err)
				}
				if tc.lost[1] == 0 {
					time.Sleep(15 * time.Second)
					n.nothingLost(t)
					checkMarks(t, cache)
				} else {
					e := <-n.events
					if took := time.Since(began); e.Kind != VMLost || took < tc.lost[0] || took > tc.lost[1] {
						t.Errorf("%+v after %v, want a loss after %v to %v", e, took, tc.lost[0], tc.lost[1])
					}
				}
			})
		})
	}
}

// A server that the manager suspects accepts no more connections. Its memory is used while the
// client's own connections read it, and is lost when these fail, too.
func TestRefusedProbe(t *testing.T) {
	onLiveness(t, func(t *testing.T, n *noticed, cache *Cache) {
		g := cache.table.Load().grants()[0]
		n.fabric.refuse(syscall.ECONNREFUSED)
		cache.checkSuspected(g, errTakesLong)
		time.Sleep(time.Minute)
		n.nothingLost(t)
		checkMarks(t, cache)
		if !cache.readsWell(t.Context(), g) {
			t.Error("memory is not read")
		}
		n.fabric.cutAll()
		sleepUntil(t, "the memory is lost", func() bool { return g.lost.Load() != nil })
	})
}
