package redytier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric/tcp"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
)

// refusing is a manager that refuses to allocate caches while refuses is set, and otherwise
// forwards the calls.
type refusing struct {
	Manager
	refuses atomic.Bool
	asked   chan struct{} // holds a token after a refusal
}

func (m *refusing) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	if m.refuses.Load() {
		offer(m.asked)
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no route"))
	}
	return m.Manager.Allocate(ctx, req)
}

// forget makes the manager forget a cache, like the end of a lease.
func (m *managed) forget(t *testing.T, id string) {
	t.Helper()
	if _, err := m.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id})); err != nil {
		t.Fatal(err)
	}
}

// A device's cache that the manager has forgotten is allocated again, every time, as soon as
// the manager has memory. The tier is refilled.
func TestForgottenCacheIsMadeAgain(t *testing.T) {
	m := manage(t, 2, 0)
	mgr := &refusing{Manager: m, asked: make(chan struct{}, 1)}
	d, err := Open(t.Context(), mgr, Config{
		Capacity: managedRegions * managedRegion, RegionSize: managedRegion, Logger: slog.New(slog.DiscardHandler),
		OnEvent: func(e Event) { m.events <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	tiered := device.NewTieredWith(device.TieredOptions{RefillRate: 1 << 40, Logger: slog.New(slog.DiscardHandler)}, d, device.NewMemory())
	if err := tiered.Start(0); err != nil {
		t.Fatal(err)
	}
	const page = 4 << 10
	p := devicetest.NewPump(t, tiered, 4)
	log := bytes.Repeat([]byte{0x5a}, 3*managedRegion)
	write := func(from, to int) {
		for at := from; at < to; at += page {
			p.Write(bytes.Clone(log[at:at+page]), int64(at), nil)
		}
		p.Drain()
	}
	write(0, managedRegion)
	cache := d.Cache()
	for round := range 2 {
		before := cache.ID()
		mgr.refuses.Store(true)
		m.forget(t, before)
		m.expect(t, CacheDeleted)
		m.expect(t, VMLost)
		testrun.Receive(t, "the cache asks for memory", mgr.asked)
		if err := cache.Err(); !errors.Is(err, ErrRegionUnavailable) {
			t.Errorf("without a cache: %v", err)
		}
		write((1+round)*managedRegion, (2+round)*managedRegion) // the other tier has these bytes
		mgr.refuses.Store(false)
		m.expect(t, Restored)
		testrun.Until(t, "the lost memory is replaced and filled", func() bool { return cache.Err() == nil && d.Missing() == 0 })
		if now := cache.ID(); now == before || now == "" {
			t.Errorf("cache %q is made again as %q", before, now)
		}
		m.agree(t, cache)
	}
	q := devicetest.NewPump(t, d, 4) // reads from the tier alone
	for at := 0; at < len(log); at += page {
		q.Read(make([]byte, page), int64(at), log[at:at+page])
	}
	q.Drain()
	q.Close()
	p.Close()
	if err := tiered.Close(); err != nil {
		t.Error(err)
	}
	m.nothingLeft(t)
}

// The manager forgets a device's cache after it has granted memory in place of a loss. That memory is
// lost with the rest, and the cache is allocated again.
func TestForgottenWhileMemoryIsReplaced(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	d := c.open(t, 64<<10, oneSided)
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	cache := d.Cache()
	old := cache.ID()
	c.refuse = func(*managerv1.ReallocateRequest) error {
		c.refuse = nil
		cache.forgotten(old)
		return nil
	}
	cache.lose(cache.table.Load().grants()[0], errors.New("gone"))
	testrun.Until(t, "the cache is allocated again", func() bool { return cache.Err() == nil && cache.ID() != old })
	for i, r := range cache.table.Load().regions.all() {
		if r.endpoint.grant.cache == old {
			t.Errorf("region %d is in memory of the forgotten cache", i)
		}
	}
}

// A cache that is not under a device continues to use its memory after the manager has
// forgotten it, and is allocated again when memory is lost.
func TestForgottenCacheGoesOn(t *testing.T) {
	m := manage(t, 0, 0)
	m.announce(t, managedRegions)
	mgr := &refusing{Manager: m, asked: make(chan struct{}, 1)}
	cache := m.create(t, mgr, Config{Transport: "mem"})
	old := cache.ID()
	cache.forgotten(old)
	m.expect(t, CacheDeleted)
	content(t, cache)
	cache.lose(cache.table.Load().grants()[0], errors.New("gone"))
	m.expect(t, DataLost)
	if e := m.expect(t, Restored); !e.DataLost || e.To != cache.Capacity() {
		t.Errorf("%+v", e)
	}
	if cache.ID() == old {
		t.Error("the cache has its former id")
	}
	content(t, cache)
	m.forget(t, old) // this manager still knew the former id
	m.agree(t, cache)
}

// A cache that the manager has forgotten loses one of its two VMs, and is allocated again. The
// other VM's regions move there with their bytes. The second of them cannot be copied at first,
// or dies with its VM.
func TestForgottenCacheKeepsWhatAnswers(t *testing.T) {
	for _, dies := range []bool{false, true} {
		m := manage(t, 2, 0)
		way := &stuck{begun: make(chan struct{}), pointless: make(chan struct{})}
		cache := m.create(t, m, Config{Transport: "mem", control: &http.Client{Transport: way}})
		write := func(b byte) []byte {
			t.Helper()
			all, called := bytes.Repeat([]byte{b}, int(cache.Capacity())), make(chan error, 1)
			if err := cache.Write(t.Context(), all, 0, func(_ int, err error) { called <- err }); err != nil {
				t.Fatal(err)
			}
			if err := testrun.Receive(t, "the write ends", called); err != nil {
				t.Fatal(err)
			}
			return all
		}
		expect := func(kind EventKind, from, to int64) Event {
			t.Helper()
			e := m.expect(t, kind)
			if e.From != from*managedRegion || e.To != to*managedRegion {
				t.Errorf("%+v, want regions %d to %d", e, from, to)
			}
			return e
		}
		want := write(0xaa)
		old, killed, stays := cache.ID(), cache.Regions()[0].VM, cache.Regions()[2].VM
		cache.forgotten(old)
		m.vms.Kill(killed)
		expect(DataLost, 0, 2)
		clear(want[:2*managedRegion])
		if e := expect(Restored, 0, 2); !e.DataLost {
			t.Errorf("%+v", e)
		}
		testrun.Receive(t, "the copy begins", way.begun)
		if dies {
			m.vms.Kill(stays)
			expect(VMLost, 3, 4)
			clear(want[3*managedRegion:])
		}
		close(way.pointless)
		if e := expect(VMLeft, 2, 3); e.VM != stays {
			t.Errorf("%+v", e)
		}
		if cache.unsettled.Load() {
			t.Error("the manager was not told where the cache is, or did not agree")
		}
		if dies {
			expect(Restored, 3, 4)
		} else {
			expect(VMLeft, 3, 4)
		}
		if cache.ID() == old {
			t.Error("the cache has its former id")
		}
		if !bytes.Equal(content(t, cache), want) {
			t.Error(testrun.WrongMark, "the cache has other bytes than before, or than zeros where they were lost")
		}
		if want = write(0xbb); !bytes.Equal(content(t, cache), want) {
			t.Error(testrun.WrongMark, "the cache has other bytes than were written")
		}
		m.forget(t, old) // this manager still knew the former id
		m.agree(t, cache)
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		m.nothingLeft(t)
	}
}

// With Late a cache is created although no memory is available, and gets memory later.
func TestLateCache(t *testing.T) {
	m := manage(t, 2, 0)
	mgr := &refusing{Manager: m, asked: make(chan struct{}, 1)}
	mgr.refuses.Store(true)
	cache := m.create(t, mgr, Config{Late: true})
	if err := cache.Err(); !errors.Is(err, ErrRegionUnavailable) || connect.CodeOf(err) != connect.CodeUnavailable || cache.ID() != "" {
		t.Errorf("cache %q without memory: %v", cache.ID(), err)
	}
	for range 3 { // the controller tries again
		testrun.Receive(t, "the cache asks for memory", mgr.asked)
	}
	mgr.refuses.Store(false)
	m.expect(t, Restored)
	during(t, cache, int(cache.Capacity()), func() {
		for range 2 {
			if err := cache.Migrate(t.Context(), cache.Regions()[0].VM); err != nil {
				t.Error(err)
			}
		}
	})
	m.agree(t, cache)
	if err := cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	m.nothingLeft(t)

	mgr.refuses.Store(true)
	never := m.create(t, mgr, Config{Late: true})
	s := newSession(t, never, 1)
	if err := s.Read(make([]byte, 8), 0, 1); err != nil {
		t.Error(err)
	}
	var done [1]device.Completion
	if err := s.Wait(t.Context()); err != nil || s.Poll(done[:]) != 1 || !errors.Is(done[0].Err, ErrRegionUnavailable) {
		t.Errorf("a read without memory: %v, %+v", err, done[0])
	}
	if err := errors.Join(s.Close(), never.Delete(t.Context())); err != nil {
		t.Error(err)
	}

	// Errors that are not temporary are returned at once, as are all errors without Late.
	if _, err := Create(t.Context(), mgr, Config{Capacity: managedRegion, Logger: slog.New(slog.DiscardHandler)}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("not late: %v", err)
	}
	if _, err := Create(t.Context(), m, Config{Capacity: managedRegion, Late: true, Transport: "none", Logger: slog.New(slog.DiscardHandler)}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("with a transport that nobody has: %v", err)
	}
}

// The client threads of a cache that gets its memory late are those of its configuration, and of the
// transport that it then has. Calls that began before end.
func TestLateClientThreads(t *testing.T) {
	want := Configuration{ClientThreads: 4, ServerThreads: 1, BatchSize: 16, QueueDepth: 8}
	for _, transport := range transporttest.Names(t) {
		c := newCluster(t, transport, 2, 1<<20)
		mgr := &refusing{Manager: c.client, asked: make(chan struct{}, 1)}
		mgr.refuses.Store(true)
		cache, err := Create(t.Context(), mgr, Config{
			Capacity: 4 << 14, RegionSize: 1 << 14, Late: true, WaitForLost: true, Configuration: want, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		called := make(chan error, 1)
		if err := cache.Read(t.Context(), make([]byte, 8), 0, func(_ int, err error) { called <- err }); err != nil {
			t.Fatal(err)
		}
		mgr.refuses.Store(false)
		if err := testrun.Receive(t, "a call from before ends", called); err != nil {
			t.Error(err)
		}
		testrun.Until(t, "the cache has its client threads", func() bool { return len(cache.clients.threadSet.Load().threads) == want.ClientThreads })
		for _, k := range cache.clients.threadSet.Load().threads {
			if depth := len(k.session.ops); depth != want.BatchSize*want.QueueDepth {
				t.Errorf("a client thread with %d pending operations", depth)
			}
			if spins := k.spins > 0; spins != (transport != tcp.Name) {
				t.Errorf("a client thread spins over %s: %v", transport, spins)
			}
		}
		content(t, cache)
		if err := syncCall(t, cache.Write, make([]byte, 8), 0); err != nil {
			t.Error(err)
		}
		if n := cache.Metrics().Sessions; n != want.ClientThreads {
			t.Errorf("%d sessions", n)
		}
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		c.nothingLeft(t)
	}
}

// outdated returns, a few times, tokens of servers that do not exist any more, and at whose
// addresses others answer.
type outdated struct {
	Manager
	times atomic.Int64
}

func (m *outdated) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	r, err := m.Manager.Allocate(ctx, req)
	if err == nil && m.times.Add(-1) >= 0 {
		for _, share := range r.Msg.GetGrants() {
			share.Token = "another's"
		}
	}
	return r, err
}

// A cache is created although the manager names servers that others have replaced. It gets
// memory when the manager knows the new ones.
func TestLateCacheOfServersReplaced(t *testing.T) {
	m := manage(t, 2, 0)
	mgr := &outdated{Manager: m}
	mgr.times.Store(3)
	cache := m.create(t, mgr, Config{Late: true})
	if err := cache.Err(); !errors.Is(err, ErrRegionUnavailable) || connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a cache without memory: %v", err)
	}
	m.expect(t, Restored)
	content(t, cache)
	m.agree(t, cache)
	if err := cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	m.nothingLeft(t)
}

// cut is a transport over which no call of a procedure arrives while it is closed.
type cut struct {
	procedure string
	closed    atomic.Bool
}

func (c *cut) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.closed.Load() && strings.HasSuffix(req.URL.Path, c.procedure) {
		return nil, errors.New("cut")
	}
	return http.DefaultTransport.RoundTrip(req)
}

// A server does not hear that its memory is not used any more, as the cache was allocated again. It
// hears that when the cache is deleted: nobody else knows of this memory.
func TestFormerMemoryIsReturned(t *testing.T) {
	c, way := newCluster(t, "mem", 1, 1<<20), &cut{procedure: "/Disconnect"}
	way.closed.Store(true)
	cache := c.create(t, Config{Capacity: 1 << 16, Configuration: oneSided, control: &http.Client{Transport: way}})
	NewDevice(cache) // so that all of it is lost at once
	id := cache.ID()
	cache.forgotten(id)
	testrun.Until(t, "the cache is allocated again", func() bool { return cache.ID() != id && cache.Err() == nil })
	way.closed.Store(false)
	if n := c.lent(t); n != 2<<16 {
		t.Errorf("%d bytes are lent before, want the former memory and the present", n)
	}
	if err := cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if n := c.lent(t); n != 0 {
		t.Errorf("%d bytes are lent to a cache that is deleted", n)
	}
}

// lent returns the bytes that all servers lend.
func (c *cluster) lent(t *testing.T) (bytes uint64) {
	t.Helper()
	for _, s := range c.servers {
		status, err := s.Status(t.Context(), connect.NewRequest(&serverv1.StatusRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		bytes += status.Msg.GetMemory() - status.Msg.GetFreeMemory()
	}
	return bytes
}

// A cache that was allocated again is deleted while a region has not left the former memory.
func TestFormerMemoryIsReturnedWhileItIsUsed(t *testing.T) {
	c, way := newCluster(t, "mem", 2, 1<<20), &cut{procedure: "/Pull"}
	way.closed.Store(true)
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 15, Configuration: oneSided, control: &http.Client{Transport: way}})
	id := cache.ID()
	cache.forgotten(id)
	cache.lose(cache.table.Load().grants()[0], errors.New("gone"))
	testrun.Until(t, "the cache is allocated again", func() bool { return cache.ID() != id && cache.Err() == nil })
	if g := cache.table.Load().regions.at(1).endpoint.grant; g.cache != id {
		t.Fatalf("the second region is in memory of %s, not of %s", g.cache, id)
	}
	if err := cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if n := c.lent(t); n != 0 {
		t.Errorf("%d bytes are lent to a cache that is deleted", n)
	}
}

// A cache that is used for longer than its duration is allocated again for as long.
func TestLongerThanExpected(t *testing.T) {
	m := manage(t, 2, 0)
	cache := m.create(t, m, Config{Duration: time.Hour})
	NewDevice(cache) // so that all of it is lost at once
	cache.created = cache.created.Add(-2 * time.Hour)
	id := cache.ID()
	m.forget(t, id)
	m.expect(t, Restored)
	if cache.Err() != nil || cache.ID() == id {
		t.Errorf("cache %s: %v", cache.ID(), cache.Err())
	}
	if got := m.known(t).GetCaches()[0].GetDurationSeconds(); got != 3600 {
		t.Errorf("for %d seconds", got)
	}
}
