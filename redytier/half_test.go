package redytier

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
)

// This file tests that a partially copied region is never used.

var halves = flag.Int("halves", testrun.Scale(1, 3, 30), "how often TestSourceDiesWhileItMoves kills a source, for each kind of move")

// kindsOfMoves are the operations that copy regions.
var kindsOfMoves = map[string]struct {
	all  bool
	move func(ctx context.Context, c *Cache, from string) error
}{
	"migrate":          {false, func(ctx context.Context, c *Cache, from string) error { return c.Migrate(ctx, from) }},
	"migrate together": {true, func(ctx context.Context, c *Cache, from string) error { return c.Migrate(ctx, from) }},
	"reshape": {false, func(ctx context.Context, c *Cache, _ string) error {
		return c.Reshape(ctx, c.Capacity(), SLO{RecordSize: 8})
	}},
}

// movable makes a cache of one region on the second of two VMs, with content that is not
// zeros. Regions move to the first VM. Lost memory is not replaced before release is called.
func movable(t *testing.T, all bool, rate int64) (c *cluster, cache *Cache, content []byte, release func()) {
	t.Helper()
	const size = 1 << 20
	c = newCluster(t, "mem", 2, 2*size)
	hold := make(chan struct{})
	cache = c.create(t, Config{
		Capacity: size, RegionSize: size, Configuration: oneSided,
		Migration: Migration{PauseAll: all, BytesPerSecond: rate}, reconnect: briefly,
		OnEvent: func(e Event) {
			if e.Kind == DataLost {
				<-hold
			}
		},
	})
	c.mu.Lock()
	c.dead = map[int]bool{1: true} // it gets no more grants
	c.mu.Unlock()
	content = bytes.Repeat([]byte{0xa5}, size)
	p := newPump(t, cache, 1)
	p.do(true, content, 0, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	p.close()
	release = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	return c, cache, content, release
}

// rightOrLost reads the cache, which must return what was written or report a loss.
func rightOrLost(t *testing.T, cache *Cache, content []byte) {
	t.Helper()
	p := newPump(t, cache, 1)
	defer p.close()
	got := make([]byte, len(content))
	p.do(false, got, 0, func(c device.Completion) {
		if !errors.Is(c.Err, ErrRegionUnavailable) {
			testrun.Bytes(got, c.Err).Want(t, content, "the cache")
		}
	})
	p.drain()
}

// hold keeps the controller busy until release is called.
func hold(t *testing.T, k *controller) (release func()) {
	t.Helper()
	held, released := make(chan struct{}), make(chan struct{})
	k.mail.post(func() { close(held); <-released })
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	testrun.Receive(t, "the controller is held", held)
	return release
}

// awaitMail waits until a number of letters wait for the controller.
func awaitMail(t *testing.T, k *controller, letters int) {
	t.Helper()
	testrun.Until(t, "the controller has mail", func() bool {
		k.mail.mu.Lock()
		defer k.mail.mu.Unlock()
		return len(k.mail.letters) >= letters
	})
}

// A pull ends half way, and the new place, which has some of the bytes, is not used: if the
// source's loss waits for the controller when the pull fails, if it comes after the end of the
// move, and if the target dies.
func TestHalfARegionIsNotUsed(t *testing.T) {
	for name, kind := range kindsOfMoves {
		for _, event := range []string{"loss", "loss after the move", "target dies"} {
			t.Run(name+", "+event, func(t *testing.T) {
				c, cache, content, release := movable(t, kind.all, 1<<14)
				source, k := cache.table.Load().regions.at(0).endpoint.grant, cache.controller
				moving, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				moved := make(chan error, 1)
				go func() { moved <- kind.move(moving, cache, source.vm) }()
				testrun.Until(t, "a part of the region is copied", func() bool { return cache.Regions()[0].Copied > 0 })
				if copied := cache.Regions()[0].Copied; copied == cache.RegionSize() {
					t.Fatalf("all %d bytes are copied", copied)
				}
				goOn := hold(t, k)
				lose := func() {
					go cache.lose(source, errors.New("gone"))
				}
				switch event {
				case "loss":
					lose()
					awaitMail(t, k, 1)
					c.kill(1)
					awaitMail(t, k, 2) // the move has found the loss as well
				case "loss after the move":
					giveUp()
					awaitMail(t, k, 2) // the task is withdrawn, and the move has ended
					lose()
					awaitMail(t, k, 3)
					c.kill(1)
				case "target dies":
					c.kill(0)
				}
				goOn()
				if err := testrun.Receive(t, "the move ends", moved); err == nil && event != "loss" {
					t.Error("the move has succeeded")
				}
				if lost := errors.Is(cache.Err(), ErrRegionUnavailable); lost != (event != "target dies") {
					t.Errorf("the cache: %v", cache.Err())
				}
				rightOrLost(t, cache, content)
				release()
			})
		}
	}
}

// A source dies, and the manager reports it, at any moment of a move.
func TestSourceDiesWhileItMoves(t *testing.T) {
	for name, kind := range kindsOfMoves {
		t.Run(name, func(t *testing.T) {
			for seed := range *halves {
				r := rand.New(rand.NewPCG(uint64(seed), 5))
				c, cache, content, release := movable(t, kind.all, 1<<20<<r.IntN(6))
				source := cache.table.Load().regions.at(0).endpoint.grant
				moved := make(chan error, 1)
				go func() { moved <- kind.move(t.Context(), cache, source.vm) }()
				// A sleep here would miss the beginning of the move.
				for end := time.Now().Add(testrun.Patience(testrun.Bound)); cache.Regions()[0].State == Stable && cache.Regions()[0].VM == source.vm; runtime.Gosched() {
					if time.Now().After(end) {
						t.Fatal("the region does not move")
					}
				}
				spin := r.IntN(1 << r.IntN(16))
				for range spin {
					runtime.Gosched()
				}
				go func() {
					c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_FAILED, VmId: source.vm, Reason: "killed"}
				}()
				c.kill(1)
				t.Logf("seed %d: %v", seed, testrun.Receive(t, "the move ends", moved))
				rightOrLost(t, cache, content)
				release()
			}
		})
	}
}
