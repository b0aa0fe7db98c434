package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/internal/testrun/property"
)

// dialler is a provider that counts connections and asks before each.
type dialler struct {
	fabric.Provider
	dials  atomic.Int32
	open   atomic.Int32
	before atomic.Pointer[func(ctx context.Context, addr string) error] // nil: none
}

func (d *dialler) wrap(p fabric.Provider) fabric.Provider {
	d.Provider = p
	return d
}

func (d *dialler) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	d.dials.Add(1)
	if f := d.before.Load(); f != nil {
		if err := (*f)(ctx, addr); err != nil {
			return nil, err
		}
	}
	qp, err := d.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	return &dialled{QueuePair: qp, d: d}, nil
}

type dialled struct {
	fabric.QueuePair
	d       *dialler
	once    sync.Once
	closing func() // called by Close; nil: none
}

func (q *dialled) Close() error {
	if q.closing != nil {
		q.closing()
	}
	q.once.Do(func() { q.d.open.Add(-1) })
	return q.QueuePair.Close()
}

// holdUp returns a function that waits until release is called, if its key is the given one. begun
// is closed with the first such call.
func holdUp[K comparable](key K) (wait func(ctx context.Context, k K) error, begun <-chan struct{}, release func()) {
	started, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	return func(ctx context.Context, k K) error {
		if k != key {
			return nil
		}
		once.Do(func() { close(started) })
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, started, func() { close(released) }
}

// passes writes bytes, and returns when the write has succeeded, whatever else is pending.
func (p *pump) passes(buf []byte, addr int64) {
	p.t.Helper()
	passed := false
	p.do(true, buf, addr, func(c device.Completion) {
		p.ok(c)
		passed = true
	})
	for !passed {
		if !p.poll() {
			p.t.FailNow()
		}
	}
}

// ok is the check of a request that must succeed.
func (p *pump) ok(c device.Completion) {
	if c.Err != nil {
		p.t.Error(c.Err)
	}
}

// A session connects to the VMs whose regions it uses. When regions move, it is connected to
// the target before, and sessions that did not use them are not.
func TestConnectionsAreOpenedWhenUsed(t *testing.T) {
	for _, configuration := range configurations[:2] {
		c := newCluster(t, "mem", 4, 1<<20)
		d := &dialler{}
		cache := c.create(t, Config{Capacity: 4 << 14, RegionSize: 1 << 14, Configuration: configuration, wrap: d.wrap})
		if n := d.open.Load(); n != 0 {
			t.Errorf("%d connections of a cache that nobody has used", n)
		}
		idle, busy := newPump(t, cache, 4), newPump(t, cache, 4)
		for range 10 {
			busy.do(true, []byte("first"), 1<<14, busy.ok)
			idle.do(false, nil, 0, idle.ok)
		}
		busy.drain()
		idle.drain()
		// A client thread is connected as well, for readsWell.
		testrun.Until(t, "a client thread is connected", func() bool { return d.open.Load() == 2 })
		from := cache.Regions()[1].VM
		if err := cache.Migrate(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		dials := d.dials.Load()
		busy.do(false, make([]byte, 5), 1<<14, busy.ok)
		busy.drain()
		if now := d.dials.Load(); now != dials {
			t.Errorf("%d connections are opened after the move", now-dials)
		}
		idle.drain()
		testrun.Until(t, "a connection is closed after the move", func() bool { return d.open.Load() == 2 })
		idle.do(false, make([]byte, 1), 1<<14, idle.ok)
		idle.drain()
		if n := d.open.Load(); n != 3 {
			t.Errorf("%d connections of two sessions", n)
		}
		busy.close()
		idle.close()
	}
}

// While a connection is being opened, requests over others go on. If its region moves
// meanwhile, the requests that wait execute at the new place.
func TestOpeningDelaysNobody(t *testing.T) {
	for _, configuration := range configurations[:2] {
		c := newCluster(t, "mem", 2, 1<<20)
		d := &dialler{}
		cache := c.create(t, Config{Capacity: 2 << 14, RegionSize: 1 << 14, Configuration: configuration, wrap: d.wrap})
		before, begun, release := holdUp(cache.table.Load().regions.at(0).endpoint.grant.fabricAddr)
		d.before.Store(&before)
		p := newPump(t, cache, 8)
		waiting := 2
		ended := func(c device.Completion) {
			p.ok(c)
			waiting--
		}
		got := make([]byte, 3)
		p.do(true, []byte("old"), 10, ended)
		p.do(true, []byte("new"), 10, ended)
		if err := p.s.Submit(); err != nil {
			t.Fatal(err)
		}
		testrun.Receive(t, "the held call begins", begun)
		for range 10 {
			p.passes([]byte("fast"), 1<<14)
		}
		if waiting != 2 {
			t.Fatal("a request does not wait for its connection")
		}
		moved := make(chan error, 1)
		go func() { moved <- cache.Migrate(t.Context(), "vm-0") }()
		p.drain()
		p.do(false, got, 10, func(c device.Completion) {
			if c.Err != nil || string(got) != "new" {
				t.Errorf("read %q: %v", got, c.Err)
			}
		})
		p.drain()
		if err := testrun.Receive(t, "the migration ends", moved); err != nil {
			t.Error(err)
		}
		release()
		p.close()
	}
}

// A lack of local resources delays the requests that need a connection, and is not the
// server's loss. A server that is gone ends them.
func TestConnectionCannotBeOpened(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	d := &dialler{}
	var lost atomic.Bool
	cache := c.create(t, Config{
		Capacity: 1 << 14, RegionSize: 1 << 14, Configuration: configurations[0], wrap: d.wrap,
		OnEvent: func(e Event) {
			if e.Kind == VMLost {
				lost.Store(true)
			}
		},
	})
	var refusals atomic.Int32
	before := func(context.Context, string) error {
		if refusals.Add(1) <= 3 {
			return fmt.Errorf("socket: %w", syscall.EMFILE)
		}
		return nil
	}
	d.before.Store(&before)
	p := newPump(t, cache, 4)
	p.connect()
	if lost.Load() || refusals.Load() < 4 {
		t.Errorf("lost %v after %d attempts", lost.Load(), refusals.Load())
	}
	p.close()
}

// A server that accepts no connection, and that nobody is connected to, is lost: requests that
// wait for the connection end.
func TestServerIsGoneBeforeItIsUsed(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	c.refuse = func(*managerv1.ReallocateRequest) error { return errors.New("no other VM") }
	d := &dialler{}
	cache := c.create(t, Config{Capacity: 1 << 14, RegionSize: 1 << 14, Configuration: configurations[0], wrap: d.wrap, reconnect: briefly})
	gone := func(context.Context, string) error { return fabric.ErrDisconnected }
	d.before.Store(&gone)
	p := newPump(t, cache, 4)
	p.do(false, make([]byte, 1), 0, func(c device.Completion) {
		if !errors.Is(c.Err, ErrRegionUnavailable) || cache.Regions()[0].State != Lost {
			t.Errorf("%v, %+v", c.Err, cache.Regions()[0])
		}
	})
	p.close()
}

// After any changes of the table, every queue of a session is as in the table: refresh finds
// what has changed.
func TestQueuesFollowTheTable(t *testing.T) {
	const regions = 3 * blockRegions
	c := newCluster(t, "mem", 3, 4<<20)
	cache := c.create(t, Config{Capacity: regions << 14, RegionSize: 1 << 14, Configuration: configurations[0]})
	property.Check(t, func(t *rapid.T) {
		s, err := cache.NewSession(8)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				at := rapid.Int64Range(0, cache.Capacity()-8).Draw(t, "at")
				if err := s.Read(make([]byte, 8), at, 0); err != nil && !errors.Is(err, device.ErrQueueFull) {
					t.Fatal(err)
				}
			case 1:
				s.step()
			default:
				cache.update(func(now *table) {
					for range rapid.IntRange(0, 5).Draw(t, "regions") {
						r := now.regions.edit(rapid.IntRange(0, regions-1).Draw(t, "region"))
						r.gate ^= holdWrites
						r.epoch++
					}
				})
			}
		}
		s.step()
		for i := range s.queues {
			r, q := s.table.regions.at(i), &s.queues[i]
			if q.place != r.endpoint || q.index != r.index || q.gate != r.gate || q.conn != s.connOf(r.endpoint) || q.number != i {
				t.Errorf("queue %d is %+v, want %+v", i, q, r)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Endpoints leave the table in the step in which sessions connect to them no more: a connection
// that is slow to close does not separate the two.
func TestEndpointsAreRemovedInOneStep(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	d := &dialler{}
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: oneSided, wrap: d.wrap})
	s := newSession(t, cache, 1) // it never takes its connection
	if err := cache.prepare(t.Context(), s, cache.table.Load().endpoints[0], nil, controlTimeout); err != nil {
		t.Fatal(err)
	}
	closing, goOn := make(chan struct{}), make(chan struct{})
	cache.mu.Lock()
	s.inbox[0].qp.(*dialled).closing = sync.OnceFunc(func() { close(closing); <-goOn })
	cache.mu.Unlock()
	other := oneSided
	other.QueueDepth++
	changed := make(chan error, 1)
	go func() { changed <- cache.Reconfigure(t.Context(), other) }()
	testrun.Receive(t, "the unused connection is closed", closing)
	cache.controller.do(func() {
		cache.mu.Lock()
		defer cache.mu.Unlock()
		for _, e := range cache.table.Load().endpoints {
			if e.removed.Load() || !slices.Contains(cache.endpoints, e) {
				t.Errorf("the table has an endpoint of VM %s that is removed", e.grant.vm)
			}
		}
	})
	close(goOn)
	if err := testrun.Receive(t, "the change ends", changed); err != nil {
		t.Error(err)
	}
}
