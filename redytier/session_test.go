package redytier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
)

// configurations are those that every behaviour is tested with.
var configurations = []Configuration{
	{ClientThreads: 1, ServerThreads: 0, BatchSize: 1, QueueDepth: 4},
	{ClientThreads: 1, ServerThreads: 1, BatchSize: 4, QueueDepth: 1},
	{ClientThreads: 2, ServerThreads: 2, BatchSize: 64, QueueDepth: 4},
}

// patience bounds how long a test waits for an event that must happen.
var patience = testrun.Patience(time.Minute)

// forAll runs a test over transports, configurations and numbers of VMs.
func forAll(t *testing.T, test func(t *testing.T, c *cluster, cfg Config)) {
	for _, name := range transporttest.Names(t) {
		for _, configuration := range configurations {
			for _, vms := range []int{1, 3} {
				if vms == 1 && !testrun.All() {
					continue
				}
				t.Run(fmt.Sprintf("%s,s=%d,b=%d,q=%d,vms=%d", name, configuration.ServerThreads, configuration.BatchSize, configuration.QueueDepth, vms), func(t *testing.T) {
					c := newCluster(t, name, vms, 1<<20)
					test(t, c, Config{Capacity: 250_000, RegionSize: 16 << 10, Configuration: configuration})
				})
			}
		}
	}
}

// pump drives a session and checks that each operation ends once, with the result that its
// check expects.
type pump struct {
	t       *testing.T
	s       *Session
	next    uint64
	pending map[uint64]func(device.Completion)
}

func newPump(t *testing.T, cache *Cache, depth int) *pump {
	t.Helper()
	return &pump{t: t, s: newSession(t, cache, depth), pending: make(map[uint64]func(device.Completion))}
}

// connect opens the connection to the cache's first region.
func (p *pump) connect() {
	p.t.Helper()
	p.do(false, make([]byte, 1), 0, func(c device.Completion) {
		if c.Err != nil {
			p.t.Error(c.Err)
		}
	})
	p.drain()
}

// useAll opens the connections to the cache's regions, and imports these.
func (p *pump) useAll() {
	p.t.Helper()
	for _, r := range p.s.cache.Regions() {
		p.do(false, make([]byte, 1), r.From, p.ok)
	}
	p.drain()
}

// newSession returns a session that is closed at the end of the test.
func newSession(t testing.TB, cache *Cache, depth int) *Session {
	t.Helper()
	s, err := cache.NewSession(depth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// waitPatiently is Wait with a timeout. It tries a second time, in case this process was
// paused.
func waitPatiently(q device.Queue) (err error) {
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err = q.Wait(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return err
}

// do starts an operation. check receives its completion, or one with the error if it was
// refused.
func (p *pump) do(write bool, buf []byte, addr int64, check func(device.Completion)) {
	op := p.s.Read
	if write {
		op = p.s.Write
	}
	p.next++
	for {
		err := op(buf, addr, p.next)
		if errors.Is(err, device.ErrQueueFull) {
			if !p.poll() {
				return
			}
			continue
		}
		if err != nil {
			check(device.Completion{Err: err})
		} else {
			p.pending[p.next] = check
		}
		return
	}
}

// poll waits for completions. It returns false if the test has failed.
func (p *pump) poll() bool {
	if err := waitPatiently(p.s); err != nil {
		p.t.Errorf("Wait with %d pending: %v", len(p.pending), err)
		return false
	}
	var done [8]device.Completion
	n := p.s.Poll(done[:])
	if n == 0 && len(p.pending) > 0 {
		p.t.Errorf("Wait returned and Poll has nothing")
		return false
	}
	for _, c := range done[:n] {
		check := p.pending[c.Tag]
		if check == nil {
			p.t.Errorf("completion %+v of nothing pending", c)
			return false
		}
		delete(p.pending, c.Tag)
		check(c)
	}
	return true
}

func (p *pump) drain() {
	for len(p.pending) > 0 && p.poll() {
	}
}

func (p *pump) close() {
	p.drain()
	if err := p.s.Close(); err != nil {
		p.t.Error(err)
	}
}

// Sessions write and read at random, each in its own part. Every read returns what the session
// wrote last, in the order of its calls (R41).
func TestSessionsEqualModel(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		const sessions = 3
		var wg sync.WaitGroup
		for id := range sessions {
			r := rand.New(rand.NewPCG(uint64(id), 1))
			p := newPump(t, cache, 1+r.IntN(40))
			wg.Go(func() {
				from, to := id*int(cfg.Capacity)/sessions, (id+1)*int(cfg.Capacity)/sessions
				model := make([]byte, to-from) // unwritten memory is zero (A12)
				defer p.close()
				for range 700 {
					n := r.IntN(1 << r.IntN(16))
					at := r.IntN(len(model))
					n = min(n, len(model)-at)
					buf := make([]byte, n)
					if write := r.IntN(2) == 0; write {
						for i := range buf {
							buf[i] = byte(r.Uint32())
						}
						copy(model[at:], buf)
						p.do(true, buf, int64(from+at), func(c device.Completion) {
							if c.Err != nil || c.N != n {
								t.Errorf("write of %d at %d: %+v", n, at, c)
							}
						})
					} else {
						want := bytes.Clone(model[at : at+n])
						p.do(false, buf, int64(from+at), func(c device.Completion) {
							testrun.Bytes(buf[:c.N], c.Err).Want(t, want, "read of %d at %d", n, at)
						})
					}
					if r.IntN(10) == 0 {
						p.poll()
					}
				}
			})
		}
		wg.Wait()
		m := cache.Metrics()
		if m.Reads == 0 || m.Writes == 0 || m.Errors != 0 || (m.Batches > 0) != (cfg.Configuration.BatchSize > 1) {
			t.Errorf("metrics %+v", m)
		}
	})
}

// Requests longer than a fabric's longest operation are split into pieces; a small bound
// splits any request. Tested with held and mirrored regions, and with full connections.
func TestRequestsGoInPieces(t *testing.T) {
	for _, strict := range []bool{false, true} {
		c := newCluster(t, "mem", 2, 1<<20)
		accesses := &lengths{}
		cache := c.create(t, Config{
			Capacity: 200_000, RegionSize: 1 << 16, Configuration: oneSided, StrictOrder: strict,
			longest: 1000, wrap: accesses.wrap,
		})
		during(t, cache, 200_000, func() {
			for i, slo := range []SLO{{RecordSize: 1}, {RecordSize: 2}} {
				if err := cache.Reshape(t.Context(), 200_000, slo); err != nil {
					t.Errorf("move %d: %v", i, err)
				}
			}
		})
		if n := accesses.most.Load(); n != 1000 {
			t.Errorf("the longest access has %d bytes, want 1000", n)
		}
	}
}

// lengths is a provider that records the lengths of one-sided accesses.
type lengths struct {
	fabric.Provider
	most atomic.Int64
}

func (l *lengths) wrap(p fabric.Provider) fabric.Provider {
	l.Provider = p
	return l
}

func (l *lengths) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	qp, err := l.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	return &measured{qp, l}, nil
}

type measured struct {
	fabric.QueuePair
	lengths *lengths
}

func (q *measured) Read(dst []byte, r fabric.Remote, offset int64, tag uint64) error {
	raise(&q.lengths.most, int64(len(dst)))
	return q.QueuePair.Read(dst, r, offset, tag)
}

func (q *measured) Write(src []byte, r fabric.Remote, offset int64, tag uint64) error {
	raise(&q.lengths.most, int64(len(src)))
	return q.QueuePair.Write(src, r, offset, tag)
}

func TestSessionBounds(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		s := newSession(t, cache, 2)
		for _, tc := range []struct {
			n    int
			addr int64
		}{{1, -1}, {1, cfg.Capacity}, {2, cfg.Capacity - 1}, {int(cfg.Capacity) + 1, 0}, {1, 1<<63 - 1}, {0, -1}, {0, cfg.Capacity + 1}} {
			if err := s.Read(make([]byte, tc.n), tc.addr, 0); !errors.Is(err, ErrOutOfRange) {
				t.Errorf("Read of %d at %d: %v", tc.n, tc.addr, err)
			}
			if err := s.Write(make([]byte, tc.n), tc.addr, 0); !errors.Is(err, ErrOutOfRange) {
				t.Errorf("Write of %d at %d: %v", tc.n, tc.addr, err)
			}
		}
		for i := range uint64(2) {
			if err := s.Read(nil, cfg.Capacity, i); err != nil {
				t.Fatalf("empty read: %v", err)
			}
		}
		if err := s.Read(nil, 0, 2); !errors.Is(err, device.ErrQueueFull) {
			t.Fatalf("third operation of two: %v", err)
		}
		var done [4]device.Completion
		if n := s.Poll(done[:]); n != 2 || done[0].Err != nil || done[1].Err != nil {
			t.Fatalf("%d completions: %+v", n, done)
		}
		for _, depth := range []int{-1, 0, MaxDepth + 1} {
			if _, err := cache.NewSession(depth); err == nil {
				t.Errorf("a session of depth %d", depth)
			}
		}
	})
}

// A VM dies while sessions use it. Every pending request ends once, requests to the VM fail
// with ErrRegionUnavailable, and others continue.
func TestServerDies(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		c.refuse = func(*managerv1.ReallocateRequest) error { return errors.New("no replacement") }
		events := make(chan Event, 16)
		cfg.OnEvent, cfg.reconnect = func(e Event) { events <- e }, briefly
		cache := c.create(t, cfg)
		table := cache.table.Load()
		lost := table.on(table.grants()[0])
		from, to := table.spans(lost)[0].from, table.spans(lost)[0].to
		// Each session has every third stripe, and so some on every VM.
		const sessions, stripe = 3, 24_000
		var pumps [sessions]*pump
		for id := range pumps {
			pumps[id] = newPump(t, cache, 16)
		}
		var wg sync.WaitGroup
		for id, p := range pumps {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(id), 2))
				defer p.close()
				failed := false
				for i := 0; i < 200 || !failed; i++ {
					if id == 0 && i == 100 {
						_ = c.servers[0].Close() // the cleanup reports its error
					}
					buf := make([]byte, 1+r.IntN(20_000))
					addr := int64(stripe*(sessions*r.IntN(3)+id) + r.IntN(stripe-len(buf)))
					touches := addr < to && addr+int64(len(buf)) > from
					p.do(r.IntN(2) == 0, buf, addr, func(c device.Completion) {
						switch {
						case c.Err == nil:
						case !errors.Is(c.Err, ErrRegionUnavailable):
							t.Errorf("%d bytes at %d: %v", len(buf), addr, c.Err)
						case !touches:
							t.Errorf("%d bytes at %d, outside of what was lost: %v", len(buf), addr, c.Err)
						default:
							failed = true
						}
					})
				}
			})
		}
		wg.Wait()
		e := testrun.Receive(t, "the next event", events)
		if e.Kind != VMLost || e.VM != "vm-0" || e.From != from || e.To != to || e.Err == nil {
			t.Errorf("event %+v", e)
		}
		if err := cache.Err(); !errors.Is(err, ErrRegionUnavailable) {
			t.Errorf("Err: %v", err)
		}
		if m := cache.Metrics(); m.LostRegions != len(lost) || m.Errors == 0 {
			t.Errorf("metrics %+v", m)
		}
		if err := cache.Delete(context.Background()); err != nil {
			t.Error(err)
		}
		for len(events) > 0 {
			if e := testrun.Receive(t, "the next event", events); e.Kind != DataLost {
				t.Errorf("another event: %+v", e)
			}
		}
	})
}

// The manager knows of a failure before the connections do.
func TestManagerReportsFailure(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		c.refuse = func(*managerv1.ReallocateRequest) error { return errors.New("no replacement") }
		events := make(chan Event, 16)
		cfg.OnEvent = func(e Event) { events <- e }
		cache := c.create(t, cfg)
		c.spoil = func(a *managerv1.AllocateResponse) { a.CacheId = "" } // the cache is not allocated again, either
		p := newPump(t, cache, 4)
		defer p.close()
		for range 2 { // the manager reports at least once
			c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: "vm-0", LeftMs: 5000}
			c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_FAILED, VmId: "vm-0", Reason: "power"}
		}
		c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_FAILED, VmId: "unknown"}
		c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_CACHE_DELETED}
		var kinds []EventKind
		for len(kinds) < 3 {
			if e := testrun.Receive(t, "the next event", events); e.Kind != DataLost {
				kinds = append(kinds, e.Kind)
			}
		}
		if fmt.Sprint(kinds) != "[VM reclaimed VM lost cache deleted]" {
			t.Errorf("events %v", kinds)
		}
		p.do(false, make([]byte, 8), 0, func(c device.Completion) {
			if !errors.Is(c.Err, ErrRegionUnavailable) {
				t.Errorf("a read of lost memory: %+v", c)
			}
		})
		p.drain()
	})
}

func TestSessionOfDeletedCache(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		p := newPump(t, cache, 4)
		defer p.close()
		if err := cache.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nothingLeft(t)
		if err := p.s.Read(make([]byte, 8), 0, 0); !errors.Is(err, ErrDeleted) {
			t.Errorf("Read: %v", err)
		}
		if _, err := cache.NewSession(1); !errors.Is(err, ErrDeleted) {
			t.Errorf("NewSession: %v", err)
		}
		if err := cache.Delete(t.Context()); !errors.Is(err, ErrDeleted) {
			t.Errorf("second Delete: %v", err)
		}
	})
}
