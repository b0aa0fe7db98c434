package redytier

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// Requests of the callback API on the same bytes execute in the order of the calls, and each
// callback runs once.
func TestCallbacks(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		var wg sync.WaitGroup
		const callers, rounds, stripe = 3, 300, 80_000
		for id := range callers {
			wg.Go(func() {
				client := cache.NewClient()
				r := rand.New(rand.NewPCG(uint64(id), 5))
				model := make([]byte, stripe)
				for range rounds {
					buf := make([]byte, r.IntN(5000))
					at := r.IntN(stripe - len(buf))
					called := new(atomic.Bool)
					var want []byte
					wg.Add(1)
					cb := func(n int, err error) {
						defer wg.Done()
						if called.Swap(true) || err != nil || n != len(buf) {
							t.Errorf("%d bytes at %d: %d, %v", len(buf), at, n, err)
						} else if want != nil {
							testrun.Bytes(buf, nil).Want(t, want, "%d bytes at %d", n, at)
						}
					}
					op := client.Write
					if r.IntN(2) == 0 {
						op, want = client.Read, bytes.Clone(model[at:at+len(buf)])
					} else {
						for i := range buf {
							buf[i] = byte(r.Uint32())
						}
						copy(model[at:], buf)
					}
					if err := op(t.Context(), buf, int64(id*stripe+at), cb); err != nil {
						t.Error(err)
						wg.Done()
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestCallRefused(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 100_000})
	never := func(int, error) { t.Error("called back after a refusal") }
	for _, addr := range []int64{-1, 100_000 - 7, 1<<63 - 1} {
		if err := cache.TryRead(make([]byte, 8), addr, never); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("at %d: %v", addr, err)
		}
	}
	if err := cache.TryWrite(nil, 0, nil); err == nil {
		t.Error("accepted without a callback")
	}

	// While the client thread is in a callback, the ring fills up.
	blocked, goOn := make(chan struct{}), make(chan struct{})
	ends := make(chan error, 2*clientRing)
	end := func(_ int, err error) { ends <- err }
	if err := cache.TryWrite(nil, 0, func(int, error) { close(blocked); <-goOn; panic("on purpose") }); err != nil {
		t.Fatal(err)
	}
	testrun.Receive(t, "the callback runs", blocked)
	accepted := 0
	var err error
	for ; err == nil; accepted++ {
		err = cache.TryRead(make([]byte, 8), 0, end)
	}
	accepted--
	if !errors.Is(err, ErrBusy) || accepted > 2*clientRing {
		t.Fatalf("after %d requests: %v", accepted, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cache.Read(ctx, make([]byte, 8), 0, never); !errors.Is(err, context.Canceled) {
		t.Errorf("Read with an ended context: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- cache.Read(context.Background(), make([]byte, 8), 0, end) }()
	close(goOn)
	if err := testrun.Receive(t, "the read that waited begins", waited); err != nil {
		t.Errorf("Read that waited: %v", err)
	}
	for range accepted + 1 {
		if err := testrun.Receive(t, "a call ends", ends); err != nil {
			t.Error(err)
		}
	}
	if n := cache.Metrics().Panics; n != 1 {
		t.Errorf("%d panics counted", n)
	}
}

// Callers that wait for a client thread that is replaced go on at the next one, all of them.
func TestCallersOutliveTheirThread(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 100_000, Configuration: Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 64, QueueDepth: 16}})
	blocked, goOn := make(chan struct{}), make(chan struct{})
	open := sync.OnceFunc(func() { close(goOn) })
	defer open()
	if err := cache.TryWrite(nil, 0, func(int, error) { close(blocked); <-goOn }); err != nil {
		t.Fatal(err)
	}
	testrun.Receive(t, "the callback runs", blocked)
	for err := error(nil); err == nil; {
		err = cache.TryRead(make([]byte, 8), 0, func(int, error) {})
	}
	const callers = 50
	returned := make(chan error, callers)
	for range callers {
		go func() { returned <- cache.Read(context.Background(), make([]byte, 8), 0, func(int, error) {}) }()
	}
	stacks := make([]byte, 4<<20)
	testrun.Until(t, "all wait", func() bool {
		n := runtime.Stack(stacks, true)
		return bytes.Count(stacks[:n], []byte("redytier.(*Client).call(")) == callers
	})
	was := cache.clients.threadSet.Load()
	changed := make(chan error, 1)
	go func() {
		changed <- cache.Reconfigure(context.Background(), Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 32, QueueDepth: 16})
	}()
	testrun.Until(t, "the thread is replaced", func() bool { return cache.clients.threadSet.Load() != was })
	open()
	for range callers {
		if err := testrun.Receive(t, "a caller goes on", returned); err != nil {
			t.Error(err)
		}
	}
	if err := testrun.Receive(t, "the cache is reconfigured", changed); err != nil {
		t.Error(err)
	}
}

// Requests may be issued from a callback, by the Try forms.
func TestCallFromCallback(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 100_000})
	left := 1000
	end := make(chan error, 1)
	buf := make([]byte, 8)
	var next Callback
	next = func(_ int, err error) {
		if left--; left == 0 || err != nil {
			end <- err
			return
		}
		if err := cache.TryRead(buf, int64(left), next); err != nil {
			end <- err
		}
	}
	if err := cache.TryWrite(buf, 0, next); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "the last call ends", end); err != nil {
		t.Error(err)
	}
}

// Delete while requests are pending: every accepted request gets its callback, none
// afterwards.
func TestDeleteCallsBack(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		cache := c.create(t, cfg)
		var accepted, ended atomic.Int64
		var wg sync.WaitGroup
		for id := range 2 {
			wg.Go(func() {
				buf := make([]byte, 100)
				for i := 0; ; i++ {
					err := cache.Read(context.Background(), buf[id*50:id*50+50], int64(i%1000), func(_ int, err error) {
						ended.Add(1)
						if err != nil && !errors.Is(err, ErrDeleted) {
							t.Errorf("called back with %v", err)
						}
					})
					if errors.Is(err, ErrDeleted) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					accepted.Add(1)
				}
			})
		}
		for ended.Load() < 500 {
			if err := cache.Read(t.Context(), nil, 0, func(int, error) {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := cache.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if accepted.Load() != ended.Load() {
			t.Errorf("%d accepted, %d called back", accepted.Load(), ended.Load())
		}
		c.nothingLeft(t)
	})
}
