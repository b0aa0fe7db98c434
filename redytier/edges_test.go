package redytier

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

// This file tests events between two steps of an operation.

var oneSided = Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 4}

// dialHook is a provider that calls before and after each Dial, if they are set.
type dialHook struct {
	fabric.Provider
	before, after atomic.Pointer[func()]
}

func (p *dialHook) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	if f := p.before.Swap(nil); f != nil {
		(*f)()
	}
	qp, err := p.Provider.Dial(ctx, addr, private, depth)
	if f := p.after.Swap(nil); f != nil {
		(*f)()
	}
	return qp, err
}

func (p *dialHook) wrap(provider fabric.Provider) fabric.Provider {
	p.Provider = provider
	return p
}

// A cache is deleted while requests wait for a gate, and others wait for them.
func TestDeleteWhileRequestsWait(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 15, Configuration: oneSided, StrictOrder: true})
	cache.update(func(t *table) {
		for i := range t.regions.len() {
			t.regions.edit(i).gate = holdWrites
		}
	})
	p := newPump(t, cache, 4)
	ended := 0
	for _, addr := range []int64{0, 1 << 15} {
		p.do(true, make([]byte, 8), addr, func(c device.Completion) {
			if ended++; !errors.Is(c.Err, ErrDeleted) {
				t.Errorf("%+v", c)
			}
		})
	}
	if err := cache.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.drain()
	if ended != 2 {
		t.Errorf("%d of 2 ended", ended)
	}
	p.close()
}

// A session is opened while regions leave the VM that it connects to.
func TestSessionOpensWhileAVMIsLeft(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	hook := &dialHook{}
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: oneSided, wrap: hook.wrap})
	var leaving sync.WaitGroup // the dial, and with it the migration, may end after the reads
	leaving.Add(1)
	leave := sync.OnceFunc(func() {
		defer leaving.Done()
		if err := cache.Migrate(t.Context(), "vm-0"); err != nil {
			t.Error(err)
		}
	})
	hook.before.Store(&leave)
	p := newPump(t, cache, 4)
	p.do(false, make([]byte, 1<<16), 0, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	p.drain()
	leaving.Wait()
	p.close()
}

// Idle sessions hold few connections, however often the data path changes.
func TestIdleSessionsHoldFewConnections(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	configuration := Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 4, QueueDepth: 2}
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: configuration})
	newPump(t, cache, 4).connect()
	for i := range 20 {
		configuration.QueueDepth = 1 + i%4
		if err := cache.Reconfigure(t.Context(), configuration); err != nil {
			t.Fatal(err)
		}
	}
	// The first and the last connection of the session, and of the client thread.
	testrun.Until(t, "the connections of former configurations are closed", func() bool {
		status, err := c.servers[0].Status(t.Context(), connect.NewRequest(&serverv1.StatusRequest{}))
		return err == nil && status.Msg.Connections <= 4
	})
}

// Delete does not wait for a region that is being copied slowly.
func TestDeleteEndsAMigration(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	cache := c.create(t, Config{
		Capacity: 1 << 18, RegionSize: 1 << 17, Configuration: oneSided,
		Migration: Migration{BytesPerSecond: 10},
	})
	moved := make(chan error, 1)
	go func() { moved <- cache.Migrate(context.Background(), "vm-0") }()
	testrun.Until(t, "a region is copied", func() bool {
		return slices.ContainsFunc(cache.Regions(), func(r RegionInfo) bool { return r.State == Copying })
	})
	deleted := make(chan error, 1)
	go func() { deleted <- cache.Delete(context.Background()) }()
	select {
	case err := <-deleted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Delete still waits")
	}
	if err := testrun.Receive(t, "the migration ends", moved); !errors.Is(err, ErrDeleted) {
		t.Errorf("Migrate: %v", err)
	}
	c.nothingLeft(t)
}

// deaf is a manager whose answers to Reallocate are lost.
type deaf struct{ Manager }

func (m deaf) Reallocate(ctx context.Context, req *connect.Request[managerv1.ReallocateRequest]) (*connect.Response[managerv1.ReallocateResponse], error) {
	_, err := m.Manager.Reallocate(ctx, req)
	return nil, errors.Join(err, context.Canceled)
}

// Grants in an answer that was lost are given back.
func TestAnswerGetsLost(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	c.client = deaf{c.client}
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: oneSided})
	before := len(c.grants)
	if err := cache.Migrate(t.Context(), "vm-0"); !errors.Is(err, context.Canceled) {
		t.Errorf("Migrate: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.grants) != before {
		t.Errorf("%d grants, %d before", len(c.grants), before)
	}
}

// Memory is lost during a Reshape: memory that the cache has, or memory that it gets.
func TestReshapeMeetsALoss(t *testing.T) {
	t.Run("old", func(t *testing.T) {
		c := newCluster(t, "mem", 2, 1<<20)
		cache := c.create(t, Config{Capacity: 60_000, RegionSize: 1 << 14, Configuration: oneSided})
		c.refuse = func(*managerv1.ReallocateRequest) error {
			c.refuse = nil
			last := cache.table.Load().regions.at(3).endpoint
			cache.lose(last.grant, errors.New("gone"))
			return nil
		}
		err, want := cache.Reshape(t.Context(), 64_000, SLO{RecordSize: 8}), int64(60_000)
		if err == nil {
			want = 64_000 // the lost memory was replaced before the Reshape met the loss
		} else if !errors.Is(err, ErrRegionUnavailable) {
			t.Errorf("Reshape: %v", err)
		}
		testrun.Until(t, "the lost memory is replaced", func() bool { return cache.Err() == nil })
		if cache.Capacity() != want {
			t.Errorf("capacity %d after Reshape: %v", cache.Capacity(), err)
		}
	})
	t.Run("new", func(t *testing.T) {
		c := newCluster(t, "mem", 2, 1<<20)
		hook := &dialHook{}
		cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: oneSided, wrap: hook.wrap})
		lose := func() {
			cache.mu.Lock()
			fresh := cache.endpoints[len(cache.endpoints)-1]
			cache.mu.Unlock()
			cache.lose(fresh.grant, errors.New("gone"))
		}
		hook.after.Store(&lose)
		err := cache.Reshape(t.Context(), 1<<17, SLO{})
		testrun.Until(t, "the lost memory is replaced", func() bool { return cache.Err() == nil })
		for i, r := range cache.table.Load().regions.all() {
			if r.endpoint.grant.lost.Load() != nil {
				t.Errorf("Reshape: %v; region %d is on a VM that is lost", err, i)
			}
		}
	})
}

// mirrored gives all regions of a cache mirrors, on the endpoints of new memory.
func mirrored(t *testing.T, cache *Cache) (places []place, endpoints []*endpoint) {
	t.Helper()
	n := len(cache.Regions())
	endpoints, _, err := cache.reallocate(t.Context(), &managerv1.ReallocateRequest{CacheId: cache.ID(), Regions: uint32(n)})
	if err != nil {
		t.Fatal(err)
	}
	places = assign(n, endpoints)
	if err := cache.move(t.Context(), places, true); err != nil {
		t.Fatal(err)
	}
	return places, endpoints
}

// A request over more regions than a connection has room for is also split on the mirror.
func TestMirrorIsFull(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 4 << 10, Configuration: oneSided})
	mirrored(t, cache)
	p := newPump(t, cache, 5)
	for i := range 10 {
		p.do(true, bytes.Repeat([]byte{byte(i)}, 1<<15), int64(i%2)<<15, func(c device.Completion) {
			if c.Err != nil || c.N != 1<<15 {
				t.Errorf("%+v", c)
			}
		})
	}
	p.drain()
	p.close()
}

// A connection to mirrors ends with a write pending. The write succeeds, and the mirrors are dropped,
// unless they have taken the regions' places: then it fails. No memory is lost, as the server lives.
func TestMirrorIsCut(t *testing.T) {
	for _, then := range []string{"dropped", "committed", "committed and lost"} {
		committed, lost := then != "dropped", then == "committed and lost"
		c, m := newCluster(t, "mem", 2, 1<<20), &muted{}
		c.refuse = func(r *managerv1.ReallocateRequest) error { r.AvoidVms = []string{"vm-0"}; return nil } // one grant
		cache := c.create(t, Config{
			Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: oneSided, wrap: m.wrap,
			OnEvent: func(e Event) {
				if !lost {
					t.Errorf("event %+v", e)
				}
			},
		})
		p := newPump(t, cache, 4)
		p.useAll()
		places, endpoints := mirrored(t, cache)
		p.passes([]byte("before"), 0)
		m.addr.Store(&endpoints[0].grant.fabricAddr)
		failed := false
		p.do(true, []byte("later"), 0, func(c device.Completion) { failed = errors.Is(c.Err, ErrRegionUnavailable) })
		if err := p.s.Submit(); err != nil {
			t.Fatal(err)
		}
		testrun.Until(t, "the region's place has the bytes", func() bool {
			if p.s.Poll(make([]device.Completion, 1)) > 0 {
				t.Fatal("the write has ended before the mirror has it")
			}
			return p.s.conns[cache.table.Load().regions.at(0).endpoint].onesided.len() == 0
		})
		commit := func() error { return cache.commit(places, endpoints, 1<<16, oneSided) }
		if committed {
			if err := commit(); err != nil {
				t.Fatal(err)
			}
		}
		if lost {
			cache.lose(endpoints[0].grant, errors.New("the VM failed"))
		}
		m.ended.Store(true)
		p.drain()
		if failed != committed {
			t.Errorf("%s: the write has failed: %v, want %v", then, failed, committed)
		}
		if lost {
			p.close()
			continue
		}
		if err := commit(); err == nil {
			t.Error("a mirror without a write is still there")
		}
		if cause := endpoints[0].grant.lost.Load(); cause != nil {
			t.Errorf("a VM that lives is lost: %v", *cause)
		}
		m.addr.Store(nil)
		p.insist([]byte("after"), 0)
		p.close()
	}
}

// A target VM is reclaimed together with the VM that its regions come from. The cache leaves
// both, and does not move back to either, although the manager would grant it.
func TestTargetIsReclaimed(t *testing.T) {
	const from, to, third = "vm-0", "vm-1", "vm-2"
	for _, landed := range []bool{false, true} { // whether the move ends before the notices
		c := newCluster(t, "mem", 3, 1<<20)
		var left [2]atomic.Int64 // bytes that left from and to
		cache := c.create(t, Config{
			Capacity: 1 << 18, RegionSize: 1 << 16, Configuration: oneSided,
			OnEvent: func(e Event) {
				if i := slices.Index([]string{from, to}, e.VM); i >= 0 && e.Kind == VMLeft {
					left[i].Add(e.To - e.From)
				}
			},
		})
		if err := cache.Migrate(t.Context(), to, third); err != nil {
			t.Fatal(err)
		}
		notices := func() {
			for _, vm := range []string{to, from} {
				c.events <- &managerv1.WatchResponse{
					Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: vm,
					LeftMs: time.Minute.Milliseconds(),
				}
			}
			testrun.Until(t, "the cache knows both notices", func() bool { return len(cache.controller.reclaiming()) == 2 })
		}
		first := atomic.Bool{}
		first.Store(true)
		c.refuse = func(r *managerv1.ReallocateRequest) error {
			if first.Swap(false) {
				r.AvoidVms = append(r.AvoidVms, third)
				if !landed {
					notices()
				}
			}
			return nil
		}
		if err := cache.Migrate(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		if landed {
			notices()
		}
		testrun.Until(t, "all regions are on the third VM", func() bool {
			return !slices.ContainsFunc(cache.Regions(), func(r RegionInfo) bool { return r.VM != third })
		})
		testrun.Until(t, "a region has left the first VM", func() bool { return left[0].Load() > 0 })
		if landed { // otherwise the move may give way to the notices
			testrun.Until(t, "all regions have left the first VM", func() bool { return left[0].Load() >= 1<<18 })
			testrun.Until(t, "all regions, and those of before, have left the second VM", func() bool { return left[1].Load() >= 1<<16+1<<18 })
		}
		testrun.Until(t, "both VMs are still reclaimed", func() bool { return len(cache.controller.reclaiming()) == 2 })
		if err := cache.Migrate(t.Context(), third); err == nil {
			t.Errorf("the cache moves to a VM that is reclaimed: %+v", cache.Regions())
		}
	}
}

// A VM is lost before its regions move: no event says that they have moved.
func TestSourceIsLost(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	events := make(chan Event, 64)
	cache := c.create(t, Config{
		Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: oneSided, OnEvent: func(e Event) { events <- e },
	})
	source := cache.table.Load().regions.at(0).endpoint.grant
	c.refuse = func(*managerv1.ReallocateRequest) error {
		c.refuse = nil
		cache.lose(source, errors.New("gone"))
		return nil
	}
	if err := cache.Migrate(t.Context(), source.vm); err != nil {
		t.Fatal(err)
	}
	for _, want := range []EventKind{VMLost, DataLost, Restored} {
		if e := testrun.Receive(t, "the next event", events); e.Kind != want || e.Epoch != 1 {
			t.Errorf("%+v, want %v", e, want)
		}
	}
}

// A Reshape that fails changes nothing, whether it is refused or ends while regions move:
// regions that were not written are still filled from the file after a loss.
func TestReshapeFailsWithAFile(t *testing.T) {
	content := bytes.Repeat([]byte{7}, 60_000)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, moves := range []bool{false, true} {
		c := newCluster(t, "mem", 2, 1<<20)
		events := make(chan Event, 64)
		cache := c.create(t, Config{
			Capacity: 60_000, RegionSize: 1 << 16, Configuration: oneSided, File: file,
			OnEvent: func(e Event) { events <- e }, Migration: Migration{BytesPerSecond: 10},
		})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		if moves {
			go func() { failed <- cache.Reshape(ctx, 100_000, SLO{RecordSize: 8}) }()
			testrun.Until(t, "the region is copied", func() bool { return cache.Regions()[0].State == Copying })
		} else {
			c.refuse = func(*managerv1.ReallocateRequest) error { return errors.New("no memory") }
			failed <- cache.Reshape(ctx, 100_000, SLO{})
			c.refuse = nil
		}
		cancel()
		if err := testrun.Receive(t, "the reshape ends", failed); err == nil || cache.Capacity() != 60_000 {
			t.Fatalf("Reshape: %v; capacity %d", err, cache.Capacity())
		}
		cache.lose(cache.table.Load().regions.at(0).endpoint.grant, errors.New("gone"))
		for _, want := range []EventKind{VMLost, Restored} {
			if e := testrun.Receive(t, "the next event", events); e.Kind != want || e.DataLost {
				t.Errorf("moves: %v: %+v, want %v with all data", moves, e, want)
			}
		}
		p := newPump(t, cache, 1)
		got := make([]byte, len(content))
		p.do(false, got, 0, func(c device.Completion) {
			testrun.Bytes(got, c.Err).Want(t, content, "moves: %v: the cache", moves)
		})
		p.close()
	}
}

// While a control operation runs, another one of the application is refused if RefuseBusy is
// set. The cache's own operations wait.
func TestRefuseBusy(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	events := make(chan Event, 64)
	cache := c.create(t, Config{
		Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: oneSided, RefuseBusy: true,
		OnEvent: func(e Event) { events <- e },
	})
	vm := cache.Regions()[0].VM
	c.refuse = func(*managerv1.ReallocateRequest) error { // the Migrate below runs
		c.refuse = nil
		for _, operation := range []func() error{
			func() error { return cache.Migrate(t.Context(), vm) },
			func() error { return cache.Reshape(t.Context(), 1<<15, SLO{}) },
			func() error { return cache.Reconfigure(t.Context(), oneSided) },
		} {
			if err := operation(); !errors.Is(err, ErrBusy) {
				t.Errorf("%v, want ErrBusy", err)
			}
		}
		cache.lose(cache.table.Load().regions.at(0).endpoint.grant, errors.New("gone"))
		return nil
	}
	if err := cache.Migrate(t.Context(), vm); err != nil {
		t.Error(err)
	}
	for e := range events {
		if e.Kind == Restored {
			break
		}
	}
	testrun.Until(t, "the task that replaces memory ends", func() bool {
		err := cache.Reshape(t.Context(), 1<<15, SLO{})
		if err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		return err == nil
	})
	if err := cache.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cache.Migrate(t.Context(), vm); !errors.Is(err, ErrDeleted) {
		t.Errorf("of a deleted cache: %v", err)
	}
}

// A cache shrinks below pending requests (A37). Issued requests end normally, and the memory
// stays until then. Requests that a full connection stopped, or that a gate holds, end with
// ErrOutOfRange.
func TestShrinkUnderRequests(t *testing.T) {
	for _, configuration := range configurations {
		c := newCluster(t, "mem", 1, 1<<20)
		cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 4 << 10, Configuration: configuration})
		cache.update(func(t *table) { t.regions.edit(12).gate = holdWrites })
		const end = 1 << 14
		type request struct {
			at, n int64
			want  error
		}
		ended := map[*pump]int{}
		start := func(requests ...request) *pump {
			p := newPump(t, cache, len(requests))
			p.useAll()
			for _, r := range requests {
				p.do(true, bytes.Repeat([]byte{1}, int(r.n)), r.at, func(c device.Completion) {
					ended[p]++
					if !errors.Is(c.Err, r.want) {
						t.Errorf("%+v: %d bytes at %d: %v, want %v", configuration, r.n, r.at, c.Err, r.want)
					}
				})
			}
			if err := p.s.Submit(); err != nil {
				t.Error(err)
			}
			return p
		}
		flying := start(request{end, 100, nil}, request{100, 100, nil})
		held := start(request{12 << 12, 100, ErrOutOfRange}, request{200, 100, nil})
		stopped := start(request{0, 1 << 15, ErrOutOfRange}) // more regions than the connection has room for
		if !stopped.s.stopped {
			t.Fatalf("%+v: the connection takes all of it", configuration)
		}
		shrunk := make(chan error, 1)
		go func() { shrunk <- cache.Reshape(context.Background(), end, SLO{}) }()
		testrun.Until(t, "the cache is smaller", func() bool { return cache.Capacity() == end })
		if lent := cache.table.Load().regions.at(0).endpoint.grant.regions.Load(); lent != 16 {
			t.Errorf("%+v: %d regions are lent while requests are pending", configuration, lent)
		}
		for _, p := range []*pump{flying, held, stopped} {
			n := len(p.pending)
			p.drain()
			if ended[p] != n {
				t.Errorf("%+v: %d of %d requests ended", configuration, ended[p], n)
			}
		}
		if err := testrun.Receive(t, "the cache has shrunk", shrunk); err != nil {
			t.Error(err)
		}
		if lent := cache.table.Load().regions.at(0).endpoint.grant.regions.Load(); lent != 4 {
			t.Errorf("%+v: %d regions are lent", configuration, lent)
		}
		buf := make([]byte, end)
		p := newPump(t, cache, 1)
		p.do(false, buf, 0, func(c device.Completion) {
			if c.Err != nil || buf[0] != 1 || buf[150] != 1 || buf[250] != 1 {
				t.Errorf("%+v: after it: %v", configuration, c.Err)
			}
		})
		p.close()
		flying.close()
		held.close()
		stopped.close()
	}
}
