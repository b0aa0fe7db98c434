package redytier

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/node"
)

// attach takes a cache up by its identity, which goes through JSON. The cache is deleted at the end
// of the test if it is not taken until then.
func (m *managed) attach(t *testing.T, mgr Manager, cfg Config, id Identity) (*Cache, error) {
	t.Helper()
	text, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Attach = new(Identity)
	if err := json.Unmarshal(text, cfg.Attach); err != nil || *cfg.Attach != id {
		t.Fatalf("%s is %+v, %v", text, cfg.Attach, err)
	}
	return m.open(t, mgr, cfg)
}

// open is create for a cache that another client may take.
func (m *managed) open(t *testing.T, mgr Manager, cfg Config) (*Cache, error) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.ServerTimeout = cmp.Or(cfg.ServerTimeout, testServerTimeout)
	if cfg.Attach == nil {
		cfg.RegionSize, cfg.Capacity = managedRegion, cmp.Or(cfg.Capacity, managedRegions*managedRegion)
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	cache, err := Create(t.Context(), mgr, cfg)
	if err == nil {
		t.Cleanup(func() {
			if err := cache.Delete(context.Background()); err != nil && !errors.Is(err, ErrDeleted) && !errors.Is(err, ErrTaken) {
				t.Error(err)
			}
		})
	}
	return cache, err
}

// fill writes random bytes to a part of a cache and returns them.
func fill(t *testing.T, cache *Cache, from, to int64) []byte {
	t.Helper()
	bytes := make([]byte, to-from)
	for i := range bytes {
		bytes[i] = byte(rand.Uint32())
	}
	p := newPump(t, cache, 1)
	defer p.close()
	p.do(true, bytes, from, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	p.drain()
	return bytes
}

// same compares all of a cache with what it should hold.
func same(t *testing.T, cache *Cache, want []byte) {
	t.Helper()
	testrun.Bytes(content(t, cache), nil).Want(t, want, "the cache")
}

// A cache is taken up from a client that still runs and writes: the bytes are there, and nothing
// that the former client does has an effect any more.
func TestAttach(t *testing.T) {
	forManaged(t, func(t *testing.T, m *managed, cfg Config) {
		old, err := m.open(t, m, cfg)
		if err != nil {
			t.Fatal(err)
		}
		want := fill(t, old, 0, old.Capacity())
		// The former client writes over the first bytes until it fails.
		const part = 4 << 10
		zombie := newPump(t, old, 8)
		junk := bytes.Repeat([]byte{0xee}, part)
		failed := make(chan error, 1)
		var wrote atomic.Uint64
		go func() {
			for {
				var failure error
				zombie.do(true, junk, 0, func(c device.Completion) { failure = c.Err })
				zombie.drain()
				if failure != nil {
					failed <- failure
					return
				}
				wrote.Add(1)
			}
		}()
		testrun.Until(t, "the former client has written", func() bool { return wrote.Load() > 10 })
		cache, err := m.attach(t, m, cfg, old.Identity())
		if err != nil {
			t.Fatal(err)
		}
		if cache.Capacity() != old.Capacity() || cache.RegionSize() != old.RegionSize() || cache.Configuration() != old.Configuration() || cache.Err() != nil {
			t.Errorf("%d bytes in regions of %d, %+v: %v", cache.Capacity(), cache.RegionSize(), cache.Configuration(), cache.Err())
		}
		copy(want, fill(t, cache, 0, part))
		same(t, cache, want)
		if err := testrun.Receive(t, "the former client's write ends", failed); !errors.Is(err, ErrRegionUnavailable) {
			t.Errorf("a write of the former client: %v", err)
		}
		testrun.Until(t, "the former client knows that the cache is taken", func() bool { return errors.Is(old.Err(), ErrTaken) })
		for range 10 {
			zombie.do(true, junk, 0, func(c device.Completion) {
				if !errors.Is(c.Err, ErrTaken) || !errors.Is(c.Err, ErrRegionUnavailable) {
					t.Errorf("a write of the former client: %v", c.Err)
				}
			})
		}
		zombie.close()
		same(t, cache, want)
		for call, err := range map[string]error{
			"Migrate": old.Migrate(t.Context(), cache.Regions()[0].VM), "Reshape": old.Reshape(t.Context(), 2*old.Capacity(), SLO{}),
			"Detach": old.Detach(t.Context()),
		} {
			if !errors.Is(err, ErrTaken) {
				t.Errorf("%s of the former client: %v", call, err)
			}
		}
		if _, err := old.NewSession(1); err == nil {
			t.Error("the former client has another session")
		}
		same(t, cache, want)
		// The new client can do everything.
		if err := cache.Migrate(t.Context(), cache.Regions()[0].VM); err != nil {
			t.Error(err)
		}
		same(t, cache, want)
		m.agree(t, cache)
	})
}

// A cache that its client left has its bytes wherever its regions moved, and its size.
func TestAttachAfterChanges(t *testing.T) {
	for name, change := range map[string]func(c *Cache) error{
		"moved":  func(c *Cache) error { return c.Migrate(context.Background(), c.Regions()[0].VM) },
		"grown":  func(c *Cache) error { return c.Reshape(context.Background(), c.Capacity()+managedRegion, SLO{}) },
		"shrunk": func(c *Cache) error { return c.Reshape(context.Background(), c.Capacity()-managedRegion-100, SLO{}) },
		"reconfigured": func(c *Cache) error {
			return c.Reconfigure(context.Background(), Configuration{ClientThreads: 2, BatchSize: 1, QueueDepth: 8})
		},
	} {
		for _, detached := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				m := manage(t, 2, 0)
				cache, err := m.open(t, m, Config{Transport: "mem"})
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					want := fill(t, cache, 0, cache.Capacity())
					if err := change(cache); err != nil {
						t.Fatal(err)
					}
					if n := cache.Capacity(); n < int64(len(want)) {
						want = want[:n]
					} else {
						want = append(want, make([]byte, int(n)-len(want))...)
					}
					copy(want, fill(t, cache, 0, 100))
					id := cache.Identity()
					if detached {
						if err := cache.Detach(t.Context()); err != nil {
							t.Fatal(err)
						}
						if err := cache.Delete(t.Context()); !errors.Is(err, ErrDeleted) {
							t.Errorf("Delete after Detach: %v", err)
						}
					}
					if cache, err = m.attach(t, m, Config{Capacity: id.Capacity}, id); err != nil {
						t.Fatal(err)
					}
					same(t, cache, want)
					m.agree(t, cache)
				}
			})
		}
	}
}

// A client ends while regions move, or before the manager knows where they are. The next one
// finds the bytes that were written last, or that the region is lost: never what a region has left
// behind.
func TestAttachWhileRegionsMove(t *testing.T) {
	for _, at := range []string{"reallocate", "reallocated", "copying", "settle", "settled"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel() // it mostly waits
			m := manage(t, 2, 0)
			reached, ended := make(chan struct{}), make(chan struct{})
			var once sync.Once
			mgr := &gateManager{Manager: m, before: func(call string) error {
				if call == at {
					once.Do(func() { close(reached) })
					<-ended
				}
				return nil
			}}
			defer close(ended)
			old, err := m.open(t, mgr, Config{Transport: "mem", Migration: Migration{BytesPerSecond: managedRegion}})
			if err != nil {
				t.Fatal(err)
			}
			want := fill(t, old, 0, old.Capacity())
			go func() {
				_ = old.Migrate(context.Background(), old.Regions()[0].VM)
				if at == "settled" {
					close(reached)
				}
			}()
			if at == "copying" {
				testrun.Until(t, "the second region is copied", func() bool { return old.Regions()[1].State == Copying }) // the other has moved
			} else {
				testrun.Receive(t, "the migration reaches the step", reached)
			}
			moved := at == "copying" || at == "settle" || at == "settled"
			lost := 2 // regions
			if at == "reallocate" || at == "settled" {
				lost = 0
			}
			if moved { // else all writes of the first regions wait
				copy(want, fill(t, old, 0, 100))
			}
			var events eventLog
			cache, err := m.attach(t, m, Config{OnEvent: events.add}, old.Identity())
			if err != nil {
				t.Fatal(err)
			}
			testrun.Until(t, "the lost memory is replaced", func() bool { return cache.Err() == nil })
			clear(want[:lost*managedRegion])
			same(t, cache, want)
			if n := events.bytes(DataLost); n != int64(lost)*managedRegion {
				t.Errorf("%d bytes were reported lost, want %d regions", n, lost)
			}
			m.agree(t, cache)
		})
	}
}

// eventLog collects events.
type eventLog struct {
	mu  sync.Mutex
	all []Event
}

func (l *eventLog) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

// bytes counts the bytes of the events of a kind.
func (l *eventLog) bytes(kind EventKind) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		if e.Kind == kind {
			n += e.To - e.From
		}
	}
	return n
}

// A server has ended since: its regions are lost, and the others have their bytes.
func TestAttachWithoutAServer(t *testing.T) {
	m := manage(t, 2, 0)
	old, err := m.open(t, m, Config{Transport: "mem"})
	if err != nil {
		t.Fatal(err)
	}
	want := fill(t, old, 0, old.Capacity())
	vm := old.Regions()[0].VM
	if err := old.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !m.vms.Kill(vm) {
		t.Fatalf("no VM %s", vm)
	}
	var events eventLog
	cache, err := m.attach(t, m, Config{OnEvent: events.add}, old.Identity())
	if err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the lost memory is replaced", func() bool { return cache.Err() == nil })
	clear(want[:2*managedRegion])
	same(t, cache, want)
	if n := events.bytes(DataLost); n != 2*managedRegion {
		t.Errorf("%d bytes were reported lost", n)
	}
	m.agree(t, cache)
}

// A grant is lost after its server has answered, and before the table has its regions: they are lost.
func TestGrantIsLostWhileACacheIsTakenUp(t *testing.T) {
	gone := errors.New("gone")
	endpoints := make([]*endpoint, 2)
	for i := range endpoints {
		endpoints[i] = newEndpoint(&grant{tokens: make([]fabric.Token, 1)}, oneSided)
	}
	endpoints[0].grant.lost.Store(&gone)
	table := newTable(2*MinRegionSize, MinRegionSize, oneSided)
	table.takeUp(2, 2, []placed{{region: 0, grant: 0}, {region: 1, grant: 1}}, slices.Clone(endpoints), make([]error, 2))
	if r := table.regions.at(0); r.state != Lost || r.endpoint != nil || !errors.Is(*r.cause, gone) || !errors.Is(*r.cause, ErrRegionUnavailable) {
		t.Errorf("the lost region: %s, %+v", r.state, r)
	}
	if r := table.regions.at(1); r.state != Stable || r.endpoint != endpoints[1] || r.epoch != 0 {
		t.Errorf("the other region: %s, %+v", r.state, r)
	}
}

// Several clients take a cache up at once: the last one has it, and all others learn it.
func TestAttachConcurrently(t *testing.T) {
	m := manage(t, 2, 0)
	old, err := m.open(t, m, Config{Transport: "mem"})
	if err != nil {
		t.Fatal(err)
	}
	want := fill(t, old, 0, old.Capacity())
	const clients = 4
	var all sync.WaitGroup
	var mu sync.Mutex
	var caches []*Cache
	for range clients {
		all.Go(func() {
			cache, err := m.attach(t, m, Config{}, old.Identity())
			if err != nil && !errors.Is(err, ErrTaken) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				caches = append(caches, cache)
			}
		})
	}
	all.Wait()
	var last *Cache
	for _, c := range caches {
		if last == nil || c.Identity().Holder > last.Identity().Holder {
			last = c
		}
	}
	if last == nil || last.Identity().Holder != clients {
		t.Fatalf("%d clients have got the cache, the last is %v", len(caches), last)
	}
	for _, c := range append(caches, old) {
		if c != last {
			testrun.Until(t, "the former clients know that the cache is taken", func() bool { return errors.Is(c.Err(), ErrTaken) })
		}
	}
	same(t, last, want)
	m.agree(t, last)
}

// A cache can be taken up as long as it lingers, and not later.
func TestLinger(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for the end of leases")
	const lease = 3 * time.Second // its end is awaited; a busy machine renews it in time
	for name, linger := range map[string]time.Duration{"none": 0, "short": time.Millisecond, "long": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			m := manage(t, 2, lease)
			old, err := m.open(t, m, Config{Transport: "mem", Linger: linger})
			if err != nil {
				t.Fatal(err)
			}
			if old.Linger() != linger {
				t.Errorf("the manager grants %v, not %v", old.Linger(), linger)
			}
			want := fill(t, old, 0, old.Capacity())
			if err := old.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
			testrun.Until(t, "the lease has ended", func() bool {
				caches := m.known(t).GetCaches()
				return len(caches) == 0 || caches[0].GetLingersUnixMs() > 0
			})
			if linger < time.Minute {
				testrun.Until(t, "the cache has ended", func() bool { return len(m.known(t).GetCaches()) == 0 })
				if _, err := m.attach(t, m, Config{}, old.Identity()); !errors.Is(err, ErrNoCache) {
					t.Errorf("a cache that has ended: %v", err)
				}
				if err := old.Identity().Discard(t.Context(), m); err != nil {
					t.Error(err)
				}
				return
			}
			cache, err := m.attach(t, m, Config{Linger: linger}, old.Identity())
			if err != nil {
				t.Fatal(err)
			}
			same(t, cache, want)
			if at := m.known(t).GetCaches()[0].GetLingersUnixMs(); at != 0 {
				t.Errorf("a cache with a client lingers until %d", at)
			}
			p := newPump(t, cache, 1)
			defer p.close()
			if err := cache.Identity().Discard(t.Context(), m); err != nil {
				t.Error(err)
			}
			m.nothingLeft(t)
			p.do(false, make([]byte, 1), 0, func(c device.Completion) {
				if !errors.Is(c.Err, ErrRegionUnavailable) {
					t.Errorf("a read of a cache that was discarded: %v", c.Err)
				}
			})
			p.drain()
		})
	}
}

// What cannot be taken up is refused, and nothing changes.
func TestAttachRefused(t *testing.T) {
	m := manage(t, 2, 0)
	cache, err := m.open(t, m, Config{Transport: "mem"})
	if err != nil {
		t.Fatal(err)
	}
	want := fill(t, cache, 0, cache.Capacity())
	good := cache.Identity()
	for name, tc := range map[string]struct {
		id  Identity
		cfg Config
	}{
		"no version":       {id: Identity{Cache: good.Cache}},
		"later version":    {id: Identity{Version: 2, Cache: good.Cache}},
		"no cache":         {id: Identity{Version: 1}},
		"another capacity": {id: good, cfg: Config{Capacity: 2 * cache.Capacity()}},
		"negative linger":  {id: good, cfg: Config{Linger: -1}},
		"unknown cache":    {id: Identity{Version: 1, Cache: "cache-of-another-manager"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.attach(t, m, tc.cfg, tc.id)
			if err == nil || errors.Is(err, ErrNoCache) != (name == "unknown cache") {
				t.Errorf("error %v", err)
			}
		})
	}
	same(t, cache, want)
	m.agree(t, cache)
}

// The manager is restarted while a cache is taken up, which then has its bytes.
func TestAttachWhileTheManagerRestarts(t *testing.T) {
	dir := t.TempDir()
	addr := "127.0.0.1:0"
	start := func() (stop func()) {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		addr = ln.Addr().String()
		m, err := manager.New(manager.Options{URL: "http://" + addr, State: dir, Transport: "mem", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- m.Serve(ln) }()
		return sync.OnceFunc(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := errors.Join(m.Close(ctx), testrun.Receive(t, "Serve ends", served)); err != nil {
				t.Error(err)
			}
		})
	}
	stop := start()
	defer func() { stop() }()
	client := access.Dial("http://" + addr)
	n, err := node.Start(node.Options{ID: "large", Memory: managedRegions * managedRegion, Cores: 4, Transport: "mem", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	registered, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- n.Announce(ctx, client, sync.OnceFunc(func() { close(registered) })) }()
	defer func() {
		cancel()
		if err := errors.Join(testrun.Receive(t, "the node ends", over), n.Close()); err != nil {
			t.Error(err)
		}
	}()
	testrun.Receive(t, "the node is registered", registered)
	var m managed
	old, err := m.open(t, client, Config{Linger: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	want := fill(t, old, 0, old.Capacity())
	stop()
	asked := &countingAttach{Manager: client, calls: make(chan struct{}, 1)}
	type result struct {
		cache *Cache
		err   error
	}
	attached := make(chan result, 1)
	go func() {
		cache, err := m.attach(t, asked, Config{Linger: time.Hour}, old.Identity())
		attached <- result{cache, err}
	}()
	testrun.Receive(t, "the manager is asked", asked.calls)
	stop = start()
	r := testrun.Receive(t, "the cache is attached", attached)
	if r.err != nil {
		t.Fatal(r.err)
	}
	same(t, r.cache, want)
	testrun.Until(t, "the former client knows that the cache is taken", func() bool { return errors.Is(old.Err(), ErrTaken) })
	if err := r.cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := old.Delete(t.Context()); err != nil && !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
}

// countingAttach tells a test of calls of Attach that have failed.
type countingAttach struct {
	Manager
	calls chan struct{}
}

func (c *countingAttach) Attach(ctx context.Context, req *connect.Request[managerv1.AttachRequest]) (*connect.Response[managerv1.AttachResponse], error) {
	answer, err := c.Manager.Attach(ctx, req)
	if err != nil {
		offer(c.calls)
	}
	return answer, err
}

// A manager that takes requests and never answers, as one does whose process is stopped, delays
// the opening of a device for a bounded time, whether or not the cache of before is wanted.
func TestOpenBesideASilentManager(t *testing.T) {
	mgr := managerv1connect.NewManagerServiceClient(&http.Client{Transport: silent{}}, "http://manager")
	const most = 2*controlTimeout + minCall // the cache is discarded, or asked for; and then a new one
	for _, linger := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			former := Identity{Version: IdentityVersion, Cache: "cache-1", Holder: 1, Capacity: 1 << 20}
			data, err := json.Marshal(companionState{Version: companionVersion, Cache: former})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			d, err := Open(t.Context(), mgr, Config{
				Capacity: 1 << 20, Transport: "mem", Late: true, Linger: linger, Companion: &ringCompanion{data},
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > most {
				t.Errorf("with a linger of %v Open took %v, want at most %v", linger, took, most)
			}
			if err := d.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// silent is a transport over which no answer arrives.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}
