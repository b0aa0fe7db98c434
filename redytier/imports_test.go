package redytier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

// importer is a provider that counts imports and asks before each.
type importer struct {
	fabric.Provider
	before atomic.Pointer[func(ctx context.Context, token fabric.Token) error] // nil: none

	mu    sync.Mutex
	pairs []*importing // that are open
}

func (n *importer) wrap(p fabric.Provider) fabric.Provider {
	n.Provider = p
	return n
}

func (n *importer) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	qp, err := n.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	q := &importing{QueuePair: qp, of: n, counts: map[fabric.Token]int{}}
	n.pairs = append(n.pairs, q)
	return q, nil
}

// ask sets what is called before each import.
func (n *importer) ask(before func(ctx context.Context, token fabric.Token) error) {
	n.before.Store(&before)
}

// count returns the number of imports so far.
func (n *importer) count() (sum int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.pairs {
		for _, k := range q.counts {
			sum += k
		}
	}
	return sum
}

// importing is a queue pair of an importer.
type importing struct {
	fabric.QueuePair
	of     *importer
	counts map[fabric.Token]int // guarded by of.mu
}

func (q *importing) Import(ctx context.Context, token fabric.Token) (fabric.Remote, error) {
	q.of.mu.Lock()
	q.counts[token]++
	q.of.mu.Unlock()
	if f := q.of.before.Load(); f != nil {
		if err := (*f)(ctx, token); err != nil {
			return fabric.Remote{}, err
		}
	}
	return q.QueuePair.Import(ctx, token)
}

// importsOf returns the imports of a session's connection to a region's place, by token.
func importsOf(s *Session, region int) map[fabric.Token]int {
	q := s.conns[s.table.regions.at(region).endpoint].qp.(*importing)
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	return maps.Clone(q.counts)
}

// token returns the token of a region's place.
func (c *Cache) token(region int) fabric.Token {
	r := c.table.Load().regions.at(region)
	return r.endpoint.grant.tokens[r.index]
}

// holdUp makes imports of a token wait until release is called. begun is closed with the first.
func (n *importer) holdUp(token fabric.Token) (begun <-chan struct{}, release func()) {
	wait, begun, release := holdUp(token)
	n.ask(wait)
	return begun, release
}

// A session imports the regions that it uses, each once over a connection, and again over the next
// connection when it uses them again.
func TestRegionsAreImportedWhenUsed(t *testing.T) {
	const regions = 16
	c := newCluster(t, "mem", 1, 1<<20)
	n := &importer{}
	var faulty *fabric.Faulty
	cache := c.create(t, Config{Capacity: regions << 14, RegionSize: 1 << 14, Configuration: oneSided, wrap: func(p fabric.Provider) fabric.Provider {
		faulty = fabric.WithFaults(p, fabric.FaultOptions{})
		return n.wrap(faulty)
	}})
	p := newPump(t, cache, 8)
	used := func(want ...int) {
		t.Helper()
		counts := importsOf(p.s, 0)
		for _, region := range want {
			if counts[cache.token(region)] != 1 {
				t.Errorf("region %d was imported %d times", region, counts[cache.token(region)])
			}
		}
		if len(counts) != len(want) {
			t.Errorf("%d regions are imported, want %d", len(counts), len(want))
		}
	}
	for range 20 {
		p.do(true, []byte("bytes"), 5<<14, p.ok)
	}
	p.drain()
	used(5)
	g := cache.table.Load().regions.at(5).endpoint.grant
	testrun.Until(t, "a client thread has imported the region", func() bool { // a client thread imports it as well, for readsWell
		k, region := cache.clients.reader(g)
		return k != nil && region == 5
	})
	n.ask(func(context.Context, fabric.Token) error { return errors.New("the server answers no import") })
	if imports := n.count(); !cache.readsWell(t.Context(), g) || n.count() != imports || imports != 2 {
		t.Errorf("readsWell after %d imports makes %d more", imports, n.count()-imports)
	}
	n.ask(func(context.Context, fabric.Token) error { return nil })
	p.do(true, make([]byte, 2<<14), 6<<14, p.ok)
	p.drain()
	used(5, 6, 7)
	p.useAll()
	p.useAll()
	used(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	faulty.CutAll()
	p.insist([]byte("again"), 9<<14)
	used(9)
	p.close()
}

// The regions that a session uses are imported where they move before they move, and no others.
// The same holds for client threads, and for those of the next configuration.
func TestImportsPrecedeMoves(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	n := &importer{}
	cache := c.create(t, Config{Capacity: 8 << 14, RegionSize: 1 << 14, Configuration: oneSided, wrap: n.wrap})
	p := newPump(t, cache, 8)
	use := func() {
		t.Helper()
		p.do(false, make([]byte, 1), 1<<14, p.ok)
		p.drain()
		if err := syncCall(t, cache.Read, make([]byte, 1), 2<<14); err != nil {
			t.Error(err)
		}
	}
	use()
	const each = 2 // one of the session, one of the client thread
	testrun.Until(t, "the session and the client thread have imported the region", func() bool { return n.count() >= each })
	for name, change := range map[string]func() error{
		"Migrate": func() error { return cache.Migrate(t.Context(), cache.Regions()[0].VM) },
		"Reconfigure": func() error {
			return cache.Reconfigure(t.Context(), Configuration{ClientThreads: 2, BatchSize: 1, QueueDepth: 8})
		},
		"Reshape": func() error { return cache.Reshape(t.Context(), 8<<14, SLO{RecordSize: 8}) },
	} {
		if err := change(); err != nil {
			t.Fatal(name, err)
		}
		p.s.step()
		before := n.count()
		use()
		if now := n.count(); now != before {
			t.Errorf("after %s, %d regions are imported when they are used", name, now-before)
		}
		if all := importsOf(p.s, 1); len(all) != 1 {
			t.Errorf("%s imports %d regions", name, len(all))
		}
	}
	p.close()
}

// While a region is imported, requests to others go on, and its own wait in their order. If the
// region moves meanwhile, they execute at its new place.
func TestImportDelaysNobody(t *testing.T) {
	for _, moves := range []bool{false, true} {
		t.Run(fmt.Sprintf("moves=%v", moves), func(t *testing.T) {
			c := newCluster(t, "mem", 2, 1<<20)
			n := &importer{}
			cache := c.create(t, Config{Capacity: 4 << 14, RegionSize: 1 << 14, Configuration: oneSided, wrap: n.wrap})
			p := newPump(t, cache, 16)
			p.do(false, make([]byte, 1), 1<<14, p.ok)
			p.drain()
			begun, release := n.holdUp(cache.token(0))
			waiting, got := 0, make([]byte, 3)
			wait := func(write bool, buf []byte, addr int64, check func(device.Completion)) {
				waiting++
				p.do(write, buf, addr, func(c device.Completion) {
					waiting--
					check(c)
				})
			}
			wait(true, []byte("old"), 10, p.ok)
			wait(true, []byte("new"), 10, p.ok)
			wait(false, got, 10, func(c device.Completion) {
				if c.Err != nil || string(got) != "new" {
					t.Errorf("read %q: %v", got, c.Err)
				}
			})
			wait(true, []byte("next"), 10, p.ok)
			if err := p.s.Submit(); err != nil {
				t.Fatal(err)
			}
			testrun.Receive(t, "the held call begins", begun)
			for range 10 {
				p.passes([]byte("fast"), 1<<14)
			}
			if waiting != 4 {
				t.Fatal("a request does not wait for its region")
			}
			moved := make(chan error, 1)
			if moves {
				go func() { moved <- cache.Migrate(t.Context(), cache.Regions()[0].VM) }()
			} else {
				moved <- nil
				release()
			}
			p.drain()
			if moves {
				release()
			}
			if err := testrun.Receive(t, "the migration ends", moved); err != nil {
				t.Error(err)
			}
			got = make([]byte, 4)
			p.do(false, got, 10, func(c device.Completion) {
				if c.Err != nil || string(got) != "next" {
					t.Errorf("read %q: %v", got, c.Err)
				}
			})
			p.drain()
			p.close()
		})
	}
}

// A region is cut off and returned while it is imported: its requests end, and the server is not
// lost.
func TestRegionIsReleasedWhileImported(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	n := &importer{}
	cache := c.create(t, Config{Capacity: 4 << 14, RegionSize: 1 << 14, Configuration: oneSided, wrap: n.wrap})
	g := cache.table.Load().regions.at(3).endpoint.grant
	p := newPump(t, cache, 4)
	p.connect()
	begun, release := n.holdUp(cache.token(3))
	p.do(true, []byte("lost"), 3<<14, func(c device.Completion) {
		if !errors.Is(c.Err, ErrOutOfRange) {
			t.Errorf("a write to a region that is cut off: %+v", c)
		}
	})
	if err := p.s.Submit(); err != nil {
		t.Fatal(err)
	}
	testrun.Receive(t, "the held call begins", begun)
	shrunk := make(chan error, 1)
	go func() { shrunk <- cache.Reshape(t.Context(), 2<<14, SLO{}) }()
	p.drain()
	if err := testrun.Receive(t, "the cache has shrunk", shrunk); err != nil {
		t.Fatal(err)
	}
	if lent := g.regions.Load(); lent != 2 {
		t.Fatalf("%d regions are lent", lent)
	}
	release()
	p.do(true, []byte("kept"), 1<<14, p.ok) // imports the next region that is wanted
	p.drain()
	if err := cache.Err(); err != nil {
		t.Error(err)
	}
	p.close()
}

// A failed import is tried again if it says nothing about the server. Otherwise the memory is lost,
// or the connection has failed and another one is made.
func TestImportFails(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		times    int32
		lost, ok bool
	}{
		"local":        {fmt.Errorf("mapping: %w", syscall.EMFILE), 3, false, true},
		"exhausted":    {fmt.Errorf("import region: %w", fabric.ErrExhausted), 3, false, true},
		"bad token":    {fabric.ErrBadToken, 1 << 30, true, false},
		"disconnected": {fabric.ErrDisconnected, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "mem", 2, 1<<20)
			n := &importer{}
			var faulty *fabric.Faulty
			var lost atomic.Bool
			cache := c.create(t, Config{
				Capacity: 2 << 14, RegionSize: 1 << 14, Configuration: oneSided,
				wrap: func(p fabric.Provider) fabric.Provider {
					faulty = fabric.WithFaults(p, fabric.FaultOptions{})
					return n.wrap(faulty)
				},
				OnEvent: func(e Event) {
					if e.Kind == VMLost {
						lost.Store(true)
					}
				},
			})
			var failures atomic.Int32
			n.ask(func(context.Context, fabric.Token) error {
				if failures.Add(1) > test.times {
					return nil
				}
				if errors.Is(test.err, fabric.ErrDisconnected) {
					faulty.CutAll()
				}
				return test.err
			})
			p := newPump(t, cache, 4)
			p.do(false, make([]byte, 1), 0, func(c device.Completion) {
				if (c.Err == nil) != test.ok || c.Err != nil && !errors.Is(c.Err, ErrRegionUnavailable) {
					t.Errorf("a read of the region: %v", c.Err)
				}
			})
			p.drain()
			if test.lost {
				testrun.Until(t, "the loss is reported", lost.Load)
				n.ask(func(context.Context, fabric.Token) error { return nil })
			}
			p.insist([]byte("after"), 0)
			if lost.Load() != test.lost {
				t.Errorf("the server is lost: %v", lost.Load())
			}
			p.close()
		})
	}
}

// Requests end if their region cannot be imported for ten seconds, though the server is not lost.
func TestImportIsGivenUp(t *testing.T) {
	onNotice(t, scheduleMenu(1<<20), func(t *testing.T, w *noticed) {
		n := &importer{}
		cfg := w.config(Config{Capacity: 2 << 20, RegionSize: 1 << 20, Configuration: oneSided})
		inner := cfg.wrap
		cfg.wrap = func(p fabric.Provider) fabric.Provider { return n.wrap(inner(p)) }
		cache, err := Create(t.Context(), w.client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		n.ask(func(context.Context, fabric.Token) error { return syscall.EMFILE })
		p := newPump(t, cache, 4)
		begin := time.Now()
		p.do(false, make([]byte, 1), 0, func(c device.Completion) {
			if took := time.Since(begin); !errors.Is(c.Err, ErrRegionUnavailable) || !errors.Is(c.Err, syscall.EMFILE) || took < controlTimeout || took > 2*controlTimeout {
				t.Errorf("after %v: %v", took, c.Err)
			}
		})
		p.drain()
		n.ask(func(context.Context, fabric.Token) error { return nil })
		p.insist([]byte("after"), 0)
		p.close()
		if err := cache.Err(); err != nil {
			t.Error(err)
		}
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
