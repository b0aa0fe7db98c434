package redytier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/shm"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/server"
)

// slowNet is a provider that delays the messages of one queue pair for as long as a test
// requires, while the pair's owner takes it for failed.
type slowNet struct {
	fabric.Provider
	mu     sync.Mutex
	caught *slowPair // the pair that wrote the bytes in catch; nil: none yet
	catch  []byte
	closes bool // the caught pair ends when its owner closes it: only what it sent before is in transit
}

func (n *slowNet) wrap(p fabric.Provider) fabric.Provider {
	n.Provider = p
	return n
}

func (n *slowNet) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	qp, err := n.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	return &slowPair{QueuePair: qp, net: n}, nil
}

// slowPair delays all writes from the first one that contains the bytes to catch.
type slowPair struct {
	fabric.QueuePair
	net  *slowNet
	late []func() error
}

func (q *slowPair) Write(src []byte, r fabric.Remote, offset int64, tag uint64) error {
	return q.write(src, func(src []byte) error { return q.QueuePair.Write(src, r, offset, tag) })
}

func (q *slowPair) WriteImm(src []byte, r fabric.Remote, offset int64, imm uint32, tag uint64) error {
	return q.write(src, func(src []byte) error { return q.QueuePair.WriteImm(src, r, offset, imm, tag) })
}

func (q *slowPair) write(src []byte, send func([]byte) error) error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if q.net.caught == nil && len(q.net.catch) > 0 && bytes.Contains(src, q.net.catch) {
		q.net.caught = q
	}
	if q.net.caught != q {
		return send(src)
	}
	src = bytes.Clone(src)
	q.late = append(q.late, func() error { return send(src) })
	return nil
}

// isCaught reports whether the pair's messages are delayed.
func (q *slowPair) isCaught() bool {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.net.caught == q
}

func (q *slowPair) Close() error {
	if q.isCaught() && !q.net.closes {
		return nil // the peer does not learn of it, either
	}
	return q.QueuePair.Close()
}

// arrive sends the delayed writes to the server and ends the pair. It returns an error if the
// server has ended the connection, as it must.
func (n *slowNet) arrive(t *testing.T) error {
	t.Helper()
	q := n.caught
	if n.Name() == shm.Name { // nothing is in transit: the pair itself refuses what comes after it has learnt of its end
		testrun.Until(t, "the pair learns that the server has ended it", func() bool { return q.Err() != nil })
	}
	var err error
	for _, send := range q.late {
		if err == nil {
			err = send()
		}
	}
	if err == nil {
		err = q.Submit()
	}
	for left := len(q.late); err == nil && left > 0; {
		var done [16]fabric.Completion
		got := q.Poll(done[:])
		for _, c := range done[:got] {
			if c.Op == fabric.OpWrite {
				err = c.Err
				left--
			}
		}
		if err == nil && got == 0 {
			err = q.Wait(t.Context())
		}
	}
	if closed := q.QueuePair.Close(); closed != nil {
		t.Logf("closing the pair that was cut: %v", closed)
	}
	return err
}

// insist repeats a write until it succeeds.
func (p *pump) insist(src []byte, addr int64) {
	p.t.Helper()
	for ok := false; !ok && !p.t.Failed(); {
		p.do(true, src, addr, func(c device.Completion) { ok = c.Err == nil })
		p.drain()
	}
}

// A write whose connection fails ends with an error, but is still in transit. It does not
// overwrite later writes of its session, whichever way they take.
func TestFailedWriteDoesNotLandLate(t *testing.T) {
	const at = 100
	early, late := bytes.Repeat([]byte("early"), 8), bytes.Repeat([]byte("late!"), 8)
	other := Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 4, QueueDepth: 4}
	for name, then := range map[string]func(t *testing.T, cache *Cache) error{
		"reconnect":   func(*testing.T, *Cache) error { return nil },
		"reconfigure": func(t *testing.T, cache *Cache) error { return cache.Reconfigure(t.Context(), other) },
		"migrate":     func(t *testing.T, cache *Cache) error { return cache.Migrate(t.Context(), cache.Regions()[0].VM) },
		"reshape":     func(t *testing.T, cache *Cache) error { return cache.Reshape(t.Context(), 1<<17, SLO{RecordSize: 8}) },
	} {
		for _, network := range transporttest.Names(t) {
			for _, configuration := range configurations {
				t.Run(fmt.Sprintf("%s,%s,b=%d", name, network, configuration.BatchSize), func(t *testing.T) {
					c := newCluster(t, network, 2, 1<<20)
					net := &slowNet{catch: early[:8]}
					cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: configuration, wrap: net.wrap})
					p := newPump(t, cache, 8)
					p.connect()
					failed := false
					p.do(true, early, at, func(c device.Completion) { failed = c.Err != nil })
					if err := p.s.Submit(); err != nil {
						t.Fatal(err)
					}
					before, changed := cache.table.Load().regions.at(0), make(chan error, 1)
					go func() { changed <- then(t, cache) }()
					if name != "reconnect" { // the change waits for the session
						testrun.Until(t, "the change waits for the session", func() bool {
							r := cache.table.Load().regions.at(0)
							return r.endpoint != before.endpoint || r.gate != before.gate
						})
					}
					p.s.step() // so that the session knows the change when the connection fails
					net.fail(p.s)
					p.drain()
					if !failed {
						t.Fatal("the write ended without an error")
					}
					p.insist(late, at)
					t.Logf("the write that was held back: %v", net.arrive(t))
					got := make([]byte, len(late))
					p.do(false, got, at, func(c device.Completion) {
						testrun.Bytes(got, c.Err).Want(t, late, "the later write")
					})
					p.drain()
					p.close()
					if err := testrun.Receive(t, "the change ends", changed); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// fail ends the session's caught connection, as its owner does.
func (n *slowNet) fail(s *Session) {
	for _, c := range s.conns {
		if c.qp == n.caught {
			c.fail(fabric.ErrDisconnected)
		}
	}
}

// If a server has no room for a connection in place of a failed one, its memory is not lost.
// The session gets a connection when there is room.
func TestReconnectIsRefused(t *testing.T) {
	configuration := Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 4, QueueDepth: 4}
	c := newClusterOf(t, 1, server.Options{
		Memory: 1 << 20, Cores: 1, Transport: "mem", RingMemory: 2 * 2 * int64(redywire.SlotSize(4)) * 4,
	})
	hook := &dialHook{}
	var faulty *fabric.Faulty
	cache := c.create(t, Config{
		Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: configuration,
		OnEvent: func(e Event) { t.Errorf("%+v", e) },
		wrap: func(p fabric.Provider) fabric.Provider {
			faulty = fabric.WithFaults(hook.wrap(p), fabric.FaultOptions{})
			return faulty
		},
	})
	if err := syncCall(t, cache.Write, []byte("x"), 100); err != nil {
		t.Fatal(err)
	}
	p := newPump(t, cache, 4) // the other connection is the client thread's
	p.insist([]byte("before"), 0)
	third := newPump(t, cache, 4)
	third.do(false, make([]byte, 8), 0, func(c device.Completion) {
		if !errors.Is(c.Err, ErrNoRoom) || !errors.Is(c.Err, ErrRegionUnavailable) {
			t.Errorf("another session: %+v", c)
		}
	})
	third.drain()
	third.close()
	other := newSession(t, cache, 1)
	refused := make(chan struct{})
	after := func() { close(refused) }
	take := func() { // takes the failed connection's room before the session asks for it
		testrun.Until(t, "the other session has a connection", func() bool {
			err := cache.prepare(t.Context(), other, cache.table.Load().endpoints[0], nil, controlTimeout)
			if err != nil && !errors.Is(err, ErrNoRoom) {
				t.Error(err)
			}
			return err == nil
		})
		hook.after.Store(&after)
	}
	hook.before.Store(&take)
	faulty.CutAll()
	p.do(false, make([]byte, 8), 0, func(c device.Completion) {
		if !errors.Is(c.Err, ErrRegionUnavailable) {
			t.Errorf("over a connection that was cut: %+v", c)
		}
	})
	p.drain()
	testrun.Receive(t, "the connection is refused", refused)
	p.do(false, make([]byte, 8), 0, func(c device.Completion) {
		if !errors.Is(c.Err, ErrRegionUnavailable) {
			t.Errorf("without a connection: %+v", c)
		}
	})
	p.drain()
	if err := errors.Join(cache.Err(), other.Close()); err != nil {
		t.Fatal(err)
	}
	p.insist([]byte("after"), 6)
	got := make([]byte, 11)
	p.do(false, got, 0, func(c device.Completion) {
		if c.Err != nil || string(got) != "beforeafter" {
			t.Errorf("%q, %+v", got, c)
		}
	})
	p.drain()
	p.close()
}

// A hole is not refilled while a write of a failed connection may still arrive there: it would
// overwrite the refilled bytes, and the refill's session is not the one that the server keeps in order.
func TestRefillWaitsForFailedWrites(t *testing.T) {
	early, late := bytes.Repeat([]byte("early"), 8), bytes.Repeat([]byte("late!"), 8)
	n := int64(len(late))
	for _, network := range transporttest.Names(t) {
		for _, configuration := range configurations {
			t.Run(fmt.Sprintf("%s,b=%d", network, configuration.BatchSize), func(t *testing.T) {
				c := newCluster(t, network, 1, 1<<20)
				// Over shared memory a pair executes its writes itself, and none after Close: that the
				// session is connected again says nothing about a pair whose end is still open.
				net, dials := &slowNet{catch: early[:8], closes: network == "shm"}, &dialler{}
				cache := c.create(t, Config{
					Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: configuration,
					wrap: func(p fabric.Provider) fabric.Provider { return net.wrap(dials.wrap(p)) },
				})
				d := connected{NewDevice(cache)}
				if err := d.Start(0); err != nil {
					t.Fatal(err)
				}
				var queues [2]*deviceQueue
				for i := range queues {
					q, err := d.NewQueue(1)
					if err != nil {
						t.Fatal(err)
					}
					defer closeQueue(t, q)
					queues[i] = q.(*deviceQueue)
				}
				writer, refiller := queues[0], queues[1]
				hold, held, release := holdUp(cache.table.Load().grants()[0].fabricAddr)
				release = sync.OnceFunc(release)
				defer release()
				if err := errors.Join(writer.Write(early, 0, 0), writer.Submit()); err != nil {
					t.Fatal(err)
				}
				dials.before.Store(&hold)
				net.fail(writer.s.(*Session))
				var done [1]device.Completion
				if writer.Poll(done[:]) != 1 || !errors.Is(done[0].Err, device.ErrNotHeld) {
					t.Fatalf("the write ended with %+v", done[0])
				}
				testrun.Receive(t, "the session connects again", held)
				if hole := d.Hole(n, int(n)); hole.From < hole.To {
					t.Errorf("%+v may be refilled", hole)
				}
				hole := device.Hole{To: n, Ticket: d.holes.current().added}
				finish(t, refiller, func() error { return refiller.Refill(late, hole, 0) }, func(c device.Completion) {
					if !errors.Is(c.Err, device.ErrNotHeld) {
						t.Errorf("a refill: %+v", c)
					}
				})
				select {
				case <-d.HoleReady(): // from before
				default:
				}
				release()
				testrun.Receive(t, "the hole can be refilled", d.HoleReady())
				hole = d.Hole(n, int(n))
				finish(t, refiller, func() error { return refiller.Refill(late, hole, 0) }, func(c device.Completion) {
					if c.Err != nil {
						t.Errorf("a refill of %+v: %+v", hole, c)
					}
				})
				t.Logf("the write that was held back: %v", net.arrive(t))
				got := make([]byte, n)
				finish(t, refiller, func() error { return refiller.Read(got, 0, 0) }, func(c device.Completion) {
					testrun.Bytes(got, c.Err).Want(t, late, "the later write")
				})
			})
		}
	}
}
