package redytier

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
)

// This file tests how lost memory is replaced.

// Lost memory without a copy answers with zeros only after OnEvent has returned for the event
// DataLost. It may migrate meanwhile. Memory with a copy does not wait.
func TestZerosWaitForTheApplication(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	const size = 1 << 16
	events, hold := make(chan Event), make(chan struct{})
	var cache *Cache
	cache = c.create(t, Config{
		Capacity: 4 * size, RegionSize: size, Configuration: oneSided,
		OnEvent: func(e Event) {
			if events <- e; e.Kind == DataLost {
				if err := cache.Migrate(t.Context(), "none"); err != nil && !errors.Is(err, ErrDeleted) { // at the end of the test
					t.Error(err)
				}
				<-hold
			}
		},
	})
	first := cache.table.Load().regions.at(0).endpoint.grant
	cache.lose(first, errors.New("gone"))
	for _, want := range []EventKind{VMLost, DataLost} {
		if e := testrun.Receive(t, "the next event", events); e.Kind != want || e.Epoch != 1 || e.From != 0 || e.To != 2*size {
			t.Errorf("%+v, want %v", e, want)
		}
	}
	p := newPump(t, cache, 1)
	read := func(want error) {
		t.Helper()
		p.do(false, make([]byte, 8), 0, func(c device.Completion) {
			if !errors.Is(c.Err, want) {
				t.Errorf("a read: %v, want %v", c.Err, want)
			}
		})
		p.drain()
	}
	read(ErrRegionUnavailable)
	if r := cache.Regions(); r[0].State != Lost || r[0].Epoch != 1 || r[3].State != Stable || r[3].Epoch != 0 {
		t.Errorf("regions %+v", r)
	}
	close(hold)
	if e := testrun.Receive(t, "the next event", events); e.Kind != Restored || !e.DataLost || e.Epoch != 1 {
		t.Errorf("%+v", e)
	}
	read(nil)
	// Regions of different epochs have separate events.
	cache.update(func(t *table) { // gives adjacent regions different epochs
		t.regions.edit(1).epoch = 7
	})
	cache.lose(cache.table.Load().regions.at(0).endpoint.grant, errors.New("gone"))
	for i, epoch := range []uint64{2, 8} {
		if e := testrun.Receive(t, "the next event", events); e.Kind != VMLost || e.Epoch != epoch || e.From != int64(i)*size {
			t.Errorf("%+v", e)
		}
	}
	p.close()
	go func() { // until the end of the test
		for range events {
		}
	}()
	if err := cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	close(events)
}

// With WaitForLost requests to lost memory wait in order until it is replaced; other requests
// do not. Waiting requests end with the cache, or with their client thread.
func TestWaitForLost(t *testing.T) {
	for _, configuration := range configurations {
		c := newCluster(t, "mem", 2, 1<<20)
		const size = 1 << 16
		told, hold := make(chan struct{}), make(chan struct{})
		cache := c.create(t, Config{
			Capacity: 4 * size, RegionSize: size, Configuration: configuration, WaitForLost: true,
			OnEvent: func(e Event) {
				if e.Kind == DataLost {
					told <- struct{}{}
					<-hold
				}
			},
		})
		lose := func() {
			cache.lose(cache.table.Load().regions.at(0).endpoint.grant, errors.New("gone"))
			testrun.Receive(t, "the event is told", told)
		}
		p := newPump(t, cache, 4)
		var ended []string
		do := func(name string, write bool, buf []byte, addr int64, want error) {
			p.do(write, buf, addr, func(c device.Completion) {
				if ended = append(ended, name); !errors.Is(c.Err, want) {
					t.Errorf("%+v: %s: %v, want %v", configuration, name, c.Err, want)
				}
			})
		}
		lose()
		got := make([]byte, 4)
		do("write", true, []byte("mine"), 0, nil)
		do("read", false, got, 0, nil)
		do("elsewhere", false, make([]byte, 4), 3*size, nil)
		p.poll()
		if len(ended) != 1 || ended[0] != "elsewhere" || cache.Err() == nil {
			t.Errorf("%+v: ended while memory is lost: %q", configuration, ended)
		}
		hold <- struct{}{}
		p.drain()
		if string(got) != "mine" {
			t.Errorf("%+v: read %q", configuration, got)
		}

		// A call waits. Its client thread is replaced without waiting for it.
		lose()
		called := make(chan error, 1)
		if err := cache.Read(t.Context(), got, 0, func(_ int, err error) { called <- err }); err != nil {
			t.Fatal(err)
		}
		if err := cache.Reconfigure(t.Context(), oneSided); err != nil {
			t.Error(err)
		}
		if err := testrun.Receive(t, "the call ends", called); !errors.Is(err, ErrRegionUnavailable) {
			t.Errorf("%+v: a call: %v", configuration, err)
		}
		hold <- struct{}{}
		do("back", false, got, 0, nil)
		p.drain()

		lose()
		do("deleted", false, got, 0, ErrDeleted)
		deleted := make(chan error, 1)
		go func() { deleted <- cache.Delete(context.Background()) }()
		p.drain()
		hold <- struct{}{}
		if err := testrun.Receive(t, "the deletion ends", deleted); err != nil {
			t.Error(err)
		}
		p.close()
	}
}

// A server dies while requests wait for lost memory. Pending requests fail, later ones do not.
func TestWaitForAServerThatDies(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		if len(c.vms) < 2 {
			return
		}
		cfg.WaitForLost, cfg.reconnect = true, briefly
		cache := c.create(t, cfg)
		p := newPump(t, cache, 1)
		defer p.close()
		failed, after := 0, 0
		c.kill(1)
		for after < 100 {
			p.do(false, make([]byte, cfg.Capacity), 0, func(c device.Completion) {
				switch {
				case errors.Is(c.Err, ErrRegionUnavailable):
					failed++
				case c.Err != nil:
					t.Error(c.Err)
				default:
					after++
				}
			})
			if p.drain(); t.Failed() {
				return
			}
		}
		if failed > 1 {
			t.Errorf("%d requests failed", failed)
		}
	})
}

// A region that has grown by zeros is not filled from the file.
func TestGrownZerosAreNotTheFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, bytes.Repeat([]byte{7}, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, "mem", 2, 1<<20)
	events := make(chan Event, 64)
	cache := c.create(t, Config{
		Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: oneSided, File: file,
		OnEvent: func(e Event) { events <- e },
	})
	for _, capacity := range []int64{1 << 15, 1 << 16} {
		if err := cache.Reshape(t.Context(), capacity, SLO{}); err != nil {
			t.Fatal(err)
		}
	}
	cache.lose(cache.table.Load().regions.at(0).endpoint.grant, errors.New("gone"))
	if e := testrun.Receive(t, "the next event", events); e.Kind != VMLost {
		t.Errorf("%+v", e)
	}
	if e := testrun.Receive(t, "the next event", events); e.Kind != DataLost {
		t.Errorf("%+v", e)
	}
	if e := testrun.Receive(t, "the next event", events); e.Kind != Restored || !e.DataLost {
		t.Errorf("%+v", e)
	}
	p := newPump(t, cache, 1)
	buf := make([]byte, 1<<15)
	p.do(false, buf, 1<<15, func(c device.Completion) {
		if c.Err != nil || len(bytes.Trim(buf, "\x00")) > 0 {
			t.Errorf("%v, zeros: %v", c.Err, len(bytes.Trim(buf, "\x00")) == 0)
		}
	})
	p.drain()
	p.close()
}

// createOfOne returns a cache of one region, and what is sent when its memory is restored.
func (c *cluster) createOfOne(t *testing.T) (*Cache, <-chan Event) {
	t.Helper()
	restored := make(chan Event, 1)
	return c.create(t, Config{
		Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: oneSided,
		OnEvent: func(e Event) {
			if e.Kind == Restored {
				restored <- e
			}
		},
	}), restored
}

// A server that was started again under its id lends a cache memory that its former incarnation
// has lost, and a late event about that one does not take the new memory away.
func TestServerIsStartedAgain(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	for i, start := range []uint64{2, 1} { // a region goes to the last VM
		c.vms[i].Id, c.vms[i].Start = "node", start
	}
	cache, restored := c.createOfOne(t)
	on := func() uint64 { return cache.table.Load().regions.at(0).endpoint.grant.start }
	if start := on(); start != 1 {
		t.Fatalf("the region is in memory of start %d", start)
	}
	c.kill(1)
	c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_FAILED, VmId: "node", Start: 1}
	testrun.Receive(t, "the region has memory again", restored)
	for _, m := range []*managerv1.WatchResponse{
		{Kind: managerv1.WatchResponse_KIND_VM_FAILED, VmId: "node", Start: 1},
		{Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: "other", LeftMs: time.Minute.Milliseconds()},
	} {
		c.events <- m
	}
	testrun.Until(t, "the events are received", func() bool { return len(cache.controller.reclaiming()) == 1 })
	if err := cache.Err(); err != nil {
		t.Fatalf("after a late event about the former incarnation: %v", err)
	}
	if start := on(); start != 2 {
		t.Errorf("the region is in memory of start %d", start)
	}
}

// Memory of a server that was believed lost and runs is used again, if there is no other.
func TestServerWasNotLost(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	c.vms[0].Start = 1
	cache, restored := c.createOfOne(t)
	cache.lose(cache.table.Load().regions.at(0).endpoint.grant, errors.New("believed"))
	testrun.Receive(t, "the region has memory again", restored)
}
