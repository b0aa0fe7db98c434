package redytier

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
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

// worker is a session that writes and reads its part of a cache, [from, to), and knows the
// expected bytes.
type worker struct {
	*pump
	r        *rand.Rand
	from, to int
	model    []byte
}

func newWorker(t *testing.T, cache *Cache, seed uint64, from, to int) *worker {
	r := rand.New(rand.NewPCG(seed, 11))
	return &worker{pump: newPump(t, cache, 1+r.IntN(32)), r: r, from: from, to: to, model: make([]byte, to-from)}
}

// round executes one random operation.
func (w *worker) round() {
	n := w.r.IntN(1 << w.r.IntN(15))
	at := w.r.IntN(len(w.model))
	n = min(n, len(w.model)-at)
	buf := make([]byte, n)
	if w.r.IntN(2) == 0 {
		for i := range buf {
			buf[i] = byte(w.r.Uint32())
		}
		copy(w.model[at:], buf)
		w.do(true, buf, int64(w.from+at), func(c device.Completion) {
			if c.Err != nil || c.N != n {
				w.t.Errorf("write of %d at %d: %+v", n, w.from+at, c)
			}
		})
	} else {
		want := bytes.Clone(w.model[at : at+n])
		w.do(false, buf, int64(w.from+at), func(c device.Completion) {
			testrun.Bytes(buf[:c.N], c.Err).Want(w.t, want, "read of %d at %d", n, w.from+at)
		})
	}
	if w.r.IntN(10) == 0 && len(w.pending) > 0 {
		w.poll()
	}
}

// check reads everything and compares it.
func (w *worker) check() {
	w.drain()
	buf := make([]byte, len(w.model))
	w.do(false, buf, int64(w.from), func(c device.Completion) {
		testrun.Bytes(buf, c.Err).Want(w.t, w.model, "[%d, %d)", w.from, w.to)
	})
	w.drain()
}

// during runs workers over all of [0, size) while f runs, and then checks what they wrote.
func during(t *testing.T, cache *Cache, size int, f func()) {
	t.Helper()
	const sessions = 3
	var over atomic.Bool
	var wg sync.WaitGroup
	for id := range sessions {
		w := newWorker(t, cache, uint64(id), id*size/sessions, (id+1)*size/sessions)
		wg.Go(func() {
			defer w.close()
			for !over.Load() && !t.Failed() {
				w.round()
			}
			w.check()
		})
	}
	defer func() { // even if f ends the test
		over.Store(true)
		wg.Wait()
	}()
	f()
}

// expectLeft receives the events of one migration: at least one, and all that are queued.
func expectLeft(t *testing.T, events chan Event) (left []Event) {
	t.Helper()
	for {
		left = append(left, testrun.Receive(t, "an event of the migration", events))
		if len(events) == 0 {
			return left
		}
	}
}

// Regions move from VM to VM and back while sessions use them.
func TestMigrate(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		if len(c.vms) < 2 {
			return // no other VM
		}
		events := make(chan Event, 64)
		cfg.OnEvent = func(e Event) { events <- e }
		cfg.Migration = map[int]Migration{1: {}, 4: {Parallel: 3}, 64: {PauseReads: true, PauseAll: true}}[cfg.Configuration.BatchSize]
		cache := c.create(t, cfg)
		during(t, cache, int(cfg.Capacity), func() {
			for _, vm := range []string{"vm-0", "vm-1"} {
				if err := cache.Migrate(t.Context(), vm); err != nil {
					t.Fatal(err)
				}
				for _, e := range expectLeft(t, events) {
					if e.VM != vm {
						t.Errorf("event %+v", e)
					}
				}
				for _, r := range cache.Regions() {
					if r.VM == vm || r.State != Stable {
						t.Errorf("after leaving %s: %+v", vm, r)
					}
				}
			}
		})
		if err := cache.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nothingLeft(t)
	})
}

// The first region of each grant moves, as by a move that ends half way, while sessions use the
// cache. Another region moves to its place, and the servers have the rest of the memory back.
func TestGapsClose(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		if len(c.vms) < 2 {
			return // no other VM
		}
		cache := c.create(t, cfg)
		regions := len(cache.Regions())
		during(t, cache, int(cfg.Capacity), func() {
			gaps := 0
			err := cache.perform(t.Context(), true, func(ctx context.Context) error {
				table := cache.table.Load()
				for _, g := range table.grants() {
					regions := table.on(g)[:1]
					endpoints, _, err := cache.reallocate(ctx, &managerv1.ReallocateRequest{
						CacheId: cache.ID(), Regions: 1, AvoidVms: []string{g.vm}, Moves: runsOf(regions),
					})
					if err == nil {
						err = cache.leave(ctx, assignTo(regions, endpoints))
					}
					if err != nil {
						return err
					}
				}
				within, leave := cache.table.Load().closeGaps()
				if gaps = len(within); len(leave) > 0 {
					t.Errorf("regions %d would leave their grants", leave)
				}
				return nil
			})
			if err != nil || gaps == 0 {
				t.Fatalf("%d gaps, %v", gaps, err)
			}
			testrun.Until(t, "the manager knows which memory is lent", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				lent := 0
				for _, g := range c.settled.Grants {
					lent += int(g.Regions)
				}
				return lent == regions
			})
		})
		if err := cache.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nothingLeft(t)
	})
}

// A region moves, and takes writes again, while a session does not poll its reads: its owner may
// wait for such a write. The memory that the region left is not returned before they are polled.
func TestMigrateWithReadsPending(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		if len(c.vms) < 2 {
			return // no other VM
		}
		cache := c.create(t, cfg)
		writer, reader := newPump(t, cache, 8), newPump(t, cache, 8)
		write := func(name string) {
			writer.do(true, []byte(name), 100, func(c device.Completion) {
				if c.Err != nil {
					t.Error(c.Err)
				}
			})
		}
		write("old")
		writer.drain()
		var read [3]byte
		reader.do(false, read[:], 100, func(c device.Completion) {
			if c.Err != nil || string(read[:]) != "old" && string(read[:]) != "new" {
				t.Errorf("%+v, %q", c, read)
			}
		})
		if err := reader.s.Submit(); err != nil {
			t.Fatal(err)
		}
		from, epoch := cache.Regions()[0].VM, cache.table.Load().epoch
		migrated := make(chan error, 1)
		go func() { migrated <- cache.Migrate(t.Context(), from) }()
		testrun.Until(t, "the region moves", func() bool { return cache.Regions()[0].State != Stable || cache.Regions()[0].VM != from })
		write("new")
		writer.drain()
		if at := cache.Regions()[0].VM; at == from {
			t.Errorf("written on %s during the move from there", at)
		}
		testrun.Until(t, "the cache returns memory", func() bool { return cache.table.Load().epoch > epoch }) // it returns memory
		i := slices.IndexFunc(c.vms, func(v *managerv1.Vm) bool { return v.GetId() == from })
		status, err := c.servers[i].Status(t.Context(), connect.NewRequest(&serverv1.StatusRequest{}))
		if err != nil || status.Msg.FreeMemory == status.Msg.Memory || len(migrated) > 0 {
			t.Errorf("VM %s has %v, and Migrate has returned: %v, while a read of a region's former memory is pending", from, status, len(migrated) > 0)
		}
		reader.drain()
		if err := testrun.Receive(t, "the migration ends", migrated); err != nil {
			t.Error(err)
		}
		writer.close()
		reader.close()
	})
}

// muted is a provider whose connections to one address have no completions meanwhile, and may end.
type muted struct {
	fabric.Provider
	addr  atomic.Pointer[string] // nil: none
	ended atomic.Bool
}

func (m *muted) wrap(p fabric.Provider) fabric.Provider {
	m.Provider = p
	return m
}

func (m *muted) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	qp, err := m.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	return &mutedPair{qp, m, addr}, nil
}

type mutedPair struct {
	fabric.QueuePair
	of   *muted
	addr string
}

func (q *mutedPair) Poll(done []fabric.Completion) int {
	if q.muted() {
		return 0
	}
	return q.QueuePair.Poll(done)
}

func (q *mutedPair) muted() bool {
	addr := q.of.addr.Load()
	return addr != nil && *addr == q.addr
}

func (q *mutedPair) Err() error {
	if q.muted() && q.of.ended.Load() {
		return fabric.ErrDisconnected
	}
	return q.QueuePair.Err()
}

// A region moves, with the writes to it, while a write to a third VM is not answered.
func TestMoveBesideASilentVM(t *testing.T) {
	for _, configuration := range configurations {
		c, m := newCluster(t, "mem", 3, 1<<20), &muted{}
		cache := c.create(t, Config{
			Capacity: 3 << 14, RegionSize: 1 << 14, Configuration: configuration, ServerTimeout: time.Hour, wrap: m.wrap,
		})
		waits, writes := newPump(t, cache, 8), newPump(t, cache, 1)
		waits.useAll()
		writes.useAll()
		if vm := cache.Regions()[1].VM; vm != "vm-1" {
			t.Fatalf("region 1 is on %s", vm)
		}
		m.addr.Store(&cache.table.Load().regions.at(1).endpoint.grant.fabricAddr)
		waits.do(true, []byte("unanswered"), 1<<14, waits.ok)
		waits.do(false, make([]byte, 8), 1<<14, waits.ok)
		if err := waits.s.Submit(); err != nil {
			t.Fatal(err)
		}
		moved := make(chan error, 1)
		go func() { moved <- cache.Migrate(t.Context(), "vm-0") }()
		testrun.Until(t, "the region has moved, and is written", func() bool {
			done := make([]device.Completion, 8)
			if waits.s.Poll(done) > 0 {
				t.Errorf("%+v", done[0])
			}
			if writes.s.Poll(done) > 0 {
				writes.ok(done[0])
				clear(writes.pending)
			}
			there := cache.Regions()[0].VM == "vm-2"
			if len(writes.pending) > 0 {
				return false
			}
			writes.do(true, []byte("moves"), 0, writes.ok)
			if err := writes.s.Submit(); err != nil {
				t.Error(err)
			}
			return there
		})
		writes.drain()
		m.addr.Store(nil)
		waits.drain()
		if err := testrun.Receive(t, "the move ends", moved); err != nil {
			t.Error(err)
		}
		got := make([]byte, 10)
		waits.do(false, got[:5], 0, waits.ok)
		waits.do(false, got[5:], 1<<14, waits.ok)
		waits.drain()
		if string(got) != "movesunans" {
			t.Errorf("read %q", got)
		}
	}
}

// A region is not copied while a write that began before is pending there, however long that takes,
// also if its session has no other request and sees the new table.
func TestMoveWaitsForWrites(t *testing.T) {
	const region = 16 << 10
	onNotice(t, scheduleMenu(region), func(t *testing.T, n *noticed) {
		m, cfg := &muted{}, n.config(Config{Capacity: 4 * region, RegionSize: region, Configuration: oneSided})
		behind := cfg.wrap
		cfg.wrap = func(p fabric.Provider) fabric.Provider { return m.wrap(behind(p)) }
		cache, err := Create(t.Context(), n.client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		p := newPump(t, cache, 2)
		p.connect()
		from := cache.Regions()[0]
		m.addr.Store(&cache.table.Load().regions.at(0).endpoint.grant.fabricAddr)
		p.do(true, []byte("pending"), 0, p.ok)
		if err := p.s.Submit(); err != nil {
			t.Fatal(err)
		}
		moved := make(chan error, 1)
		go func() { moved <- cache.Migrate(t.Context(), from.VM) }()
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if done := make([]device.Completion, 1); p.s.Poll(done) > 0 {
				t.Errorf("%+v", done[0])
			}
		}
		if r := cache.Regions()[0]; r.State != Quiescing || r.VM != from.VM {
			t.Errorf("%+v while a write is pending", r)
		}
		m.addr.Store(nil)
		p.drain()
		if err := <-moved; err != nil {
			t.Error(err)
		}
		checkMarks(t, cache)
		p.close()
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A cache changes batches and rings while sessions use it.
func TestReconfigure(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		during(t, cache, int(cfg.Capacity), func() {
			for _, configuration := range configurations {
				if err := cache.Reconfigure(t.Context(), configuration); err != nil {
					t.Fatal(err)
				}
				if cache.Configuration() != configuration {
					t.Errorf("configuration %+v, want %+v", cache.Configuration(), configuration)
				}
			}
			if err := cache.Reconfigure(t.Context(), Configuration{ClientThreads: 99, ServerThreads: 99, BatchSize: 2, QueueDepth: 1}); !errors.Is(err, ErrCores) || !strings.Contains(err.Error(), "16 cores") {
				t.Errorf("more server threads than cores: %v", err)
			}
			if want := configurations[len(configurations)-1]; cache.Configuration() != want {
				t.Errorf("after a failure: %+v", cache.Configuration())
			}
		})
		if m := cache.Metrics(); m.Errors != 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

var reshapes = flag.Int("reshapes", testrun.Scale(2, 6, 60), "how often TestReshape reshapes each cache")

// A cache grows, shrinks, and moves to another SLO, while sessions use the part that always
// exists.
func TestReshape(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		least := int64(90_000)
		during(t, cache, int(least), func() {
			slo := cfg.SLO
			r := rand.New(rand.NewPCG(uint64(len(c.vms)), 3))
			for i := range *reshapes {
				before := cache.Capacity()
				capacity := least + r.Int64N(200_000)
				if i%3 == 2 {
					slo.RecordSize++
				}
				if err := cache.Reshape(t.Context(), capacity, slo); err != nil {
					t.Fatal(err)
				}
				if cache.Capacity() != capacity {
					t.Fatalf("capacity %d, want %d", cache.Capacity(), capacity)
				}
				// Added bytes are zeros. They are then written, so that bytes cut off later are not zeros.
				p := newPump(t, cache, 2)
				if before < capacity {
					added := make([]byte, capacity-before)
					added[0] = 1
					p.do(false, added, before, func(c device.Completion) {
						if c.Err != nil || len(bytes.Trim(added, "\x00")) > 0 {
							t.Errorf("%d bytes added at %d: %v", len(added), before, c.Err)
						}
					})
					p.drain()
					p.do(true, bytes.Repeat([]byte{0xff}, len(added)), before, func(c device.Completion) {
						if c.Err != nil {
							t.Error(c.Err)
						}
					})
				}
				p.do(false, make([]byte, 1), capacity, func(c device.Completion) {
					if !errors.Is(c.Err, ErrOutOfRange) {
						t.Errorf("beyond the end: %v", c.Err)
					}
				})
				p.close()
			}
		})
		if err := cache.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nothingLeft(t)
	})
}

// A Reshape that fails changes nothing.
func TestReshapeFails(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		during(t, cache, int(cfg.Capacity), func() {
			for _, tc := range []struct {
				capacity int64
				slo      SLO
			}{{1, SLO{}}, {cfg.Capacity, SLO{RecordSize: -1}}, {1 << 60, SLO{}}, {100 << 20, SLO{}}, {100 << 20, SLO{RecordSize: 8}}} {
				if err := cache.Reshape(t.Context(), tc.capacity, tc.slo); err == nil {
					t.Errorf("reshaped to %+v", tc)
				}
				if cache.Capacity() != cfg.Capacity || cache.Err() != nil {
					t.Fatalf("capacity %d, %v", cache.Capacity(), cache.Err())
				}
			}
		})
		if err := cache.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nothingLeft(t)
	})
}

// A server dies. Its regions answer again, with bytes from Recover or with zeros, and events
// tell the application which.
func TestLostRegionsComeBack(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		if len(c.vms) < 2 {
			return
		}
		recovered := cfg.Configuration.BatchSize == 1
		if recovered {
			cfg.Recover = func(_ context.Context, dst []byte, addr int64) error {
				for i := range dst {
					dst[i] = byte(addr + int64(i))
				}
				return nil
			}
		}
		events := make(chan Event, 64)
		cfg.OnEvent, cfg.reconnect = func(e Event) { events <- e }, briefly
		cache := c.create(t, cfg)
		table := cache.table.Load()
		span := table.spans(table.on(table.grants()[1]))[0]
		p := newPump(t, cache, 8)
		defer p.close()
		ones := bytes.Repeat([]byte{0xee}, int(cfg.Capacity))
		p.do(true, ones, 0, func(c device.Completion) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		p.drain()
		c.kill(1)
		failed := false
		for !failed {
			p.do(false, make([]byte, 8), span.from, func(c device.Completion) { failed = c.Err != nil })
			p.drain()
		}
		if e := testrun.Receive(t, "the next event", events); e.Kind != VMLost || e.VM != "vm-1" || e.From != span.from || e.To != span.to {
			t.Errorf("event %+v", e)
		}
		if !recovered {
			if e := testrun.Receive(t, "the next event", events); e.Kind != DataLost || e.From != span.from || e.To != span.to {
				t.Errorf("event %+v", e)
			}
		}
		if e := testrun.Receive(t, "the next event", events); e.Kind != Restored || e.From != span.from || e.To != span.to || e.DataLost == recovered {
			t.Errorf("event %+v", e)
		}
		if err := cache.Err(); err != nil {
			t.Error(err)
		}
		got := make([]byte, cfg.Capacity)
		p.do(false, got, 0, func(c device.Completion) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		p.drain()
		for i, b := range got {
			want := byte(0xee)
			if int64(i) >= span.from && int64(i) < span.to {
				want = 0
				if recovered {
					want = byte(i)
				}
			}
			if b != want {
				t.Fatalf("byte %d is %#x, want %#x", i, b, want)
			}
		}
	})
}
