package redytier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
)

// This file tests that a reclaimed VM is left in time, whatever other operation runs.

// obstructed is a transport to servers on which the first call of a procedure is not answered
// until its caller cancels it.
type obstructed struct {
	procedure string
	calls     atomic.Int32
	begun     chan struct{} // closed at that call
}

func (o *obstructed) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, o.procedure) && o.calls.Add(1) == 1 {
		close(o.begun)
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return http.DefaultTransport.RoundTrip(req)
}

// obstruct starts an operation that blocks at its first call of a procedure, and returns a
// channel for its error.
func obstruct(t *testing.T, way *obstructed, operation func() error) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- operation() }()
	select {
	case <-way.begun:
	case err := <-ended:
		t.Fatalf("it is through without %s: %v", way.procedure, err)
	}
	return ended
}

// leftInTime reclaims a VM, and returns when the cache has left it before its deadline.
func (m *managed) leftInTime(t *testing.T, vm string) {
	t.Helper()
	if !m.vms.Reclaim(vm, time.Hour) {
		t.Fatalf("no VM %s", vm)
	}
	if left := m.expect(t, VMLeft); left.VM != vm {
		t.Errorf("%+v, want that VM %s is left", left, vm)
	}
	m.gone(t, vm)
}

// An operation that waits for a session to poll its reads, as it returns memory, gives way to a
// notice. It goes on afterwards.
func TestNoticeWhileMemoryIsReturned(t *testing.T) {
	m := manage(t, 2, 0)
	var log logged
	cache := m.create(t, m, Config{Transport: "mem", Configuration: configurations[0], Logger: slog.New(slog.NewTextHandler(&log, nil))})
	reader := newPump(t, cache, 1)
	reader.do(false, make([]byte, 8), 0, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	first, other := cache.Regions()[0].VM, cache.Regions()[3].VM
	migrated := make(chan error, 1)
	go func() { migrated <- cache.Migrate(t.Context(), first) }()
	testrun.Until(t, "the first region has moved", func() bool { return cache.Regions()[0].VM != first })
	if !m.vms.Reclaim(other, time.Hour) {
		t.Fatalf("no VM %s", other)
	}
	testrun.Until(t, "the last region has moved", func() bool { return cache.Regions()[3].VM != other })
	if text := log.String(); strings.Contains(text, context.DeadlineExceeded.Error()) {
		t.Errorf("the reclaimed VM was left after the time in which memory is returned:\n%s", text)
	}
	reader.drain()
	if err := testrun.Receive(t, "the migration ends", migrated); err != nil {
		t.Error(err)
	}
	m.gone(t, other)
	reader.close()
}

// logged is what was logged.
type logged struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The application's operations are preempted by a notice at any step, and continue when the VM
// is left. Nothing is lost.
func TestNoticeWhileTheApplicationChangesTheCache(t *testing.T) {
	const capacity = managedRegions * managedRegion
	other := Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 2}
	for name, tc := range map[string]struct {
		procedure string
		busy      bool
		change    func(cache *Cache) error
		check     func(cache *Cache) bool
	}{
		"migrate": {
			procedure: serverv1connect.CacheServerServicePullProcedure, busy: true,
			change: func(c *Cache) error { return c.Migrate(t.Context(), c.Regions()[3].VM) },
			check:  func(c *Cache) bool { return c.Capacity() == capacity },
		},
		"reshape": {
			procedure: serverv1connect.CacheServerServicePullProcedure,
			change: func(c *Cache) error {
				return c.Reshape(t.Context(), capacity-100, SLO{RecordSize: 16})
			},
			check: func(c *Cache) bool { return c.Capacity() == capacity-100 && c.slo.RecordSize == 16 },
		},
		"grow": {
			procedure: serverv1connect.CacheServerServiceConnectProcedure,
			change:    func(c *Cache) error { return c.Reshape(t.Context(), 2*capacity, SLO{}) },
			check:     func(c *Cache) bool { return c.Capacity() == 2*capacity },
		},
		"reconfigure": {
			procedure: serverv1connect.CacheServerServiceConfigureProcedure, busy: true,
			change: func(c *Cache) error { return c.Reconfigure(t.Context(), other) },
			check:  func(c *Cache) bool { return c.Configuration() == other },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, 2, 0)
			way := &obstructed{procedure: tc.procedure, begun: make(chan struct{})}
			cache := m.create(t, m, Config{
				Transport: "mem", Configuration: configurations[0], control: &http.Client{Transport: http.DefaultTransport}, RefuseBusy: tc.busy,
			})
			cache.cfg.control.Transport = way
			during(t, cache, capacity-100, func() {
				reclaimed, other := cache.Regions()[0].VM, cache.Regions()[3].VM
				ended := obstruct(t, way, func() error { return tc.change(cache) })
				m.leftInTime(t, reclaimed)
				if err := testrun.Receive(t, "the operation goes on", ended); err != nil {
					t.Errorf("it did not go on: %v", err)
				}
				if name == "migrate" {
					m.gone(t, other)
				}
			})
			if !tc.check(cache) {
				t.Errorf("it has ended without effect: %d bytes, %+v", cache.Capacity(), cache.Configuration())
			}
			m.agree(t, cache)
			quiet(t, m)
		})
	}
}

// A Reconfigure that waits for a callback gives way to a notice. Calls made meanwhile wait for
// the callback, and are executed after it.
func TestNoticeWhileACallbackRuns(t *testing.T) {
	m := manage(t, 2, 0)
	cache := m.create(t, m, Config{Transport: "mem", Configuration: configurations[0]})
	running, goOn := make(chan struct{}), make(chan struct{})
	client := cache.NewClient()
	if err := client.Read(t.Context(), make([]byte, 8), 0, func(int, error) { close(running); <-goOn }); err != nil {
		t.Fatal(err)
	}
	testrun.Receive(t, "the task runs", running)
	reclaimed := cache.Regions()[3].VM
	other := Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 2}
	ended := make(chan error, 1)
	go func() { ended <- cache.Reconfigure(t.Context(), other) }()
	testrun.Until(t, "the cache has the other configuration", func() bool { return cache.Configuration() == other })
	if !m.vms.Reclaim(reclaimed, time.Hour) {
		t.Fatalf("no VM %s", reclaimed)
	}
	testrun.Until(t, "the last region has left the reclaimed VM", func() bool { return cache.Regions()[3].VM != reclaimed })
	if err := testrun.Receive(t, "the reconfiguration ends", ended); err != nil {
		t.Error(err)
	}
	later := make(chan error, 1)
	if err := client.Read(t.Context(), make([]byte, 8), 0, func(_ int, err error) { later <- err }); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-later:
		t.Errorf("a call overtook a callback of its handle: %v", err)
	default:
	}
	close(goOn)
	if err := testrun.Receive(t, "the later call ends", later); err != nil {
		t.Error(err)
	}
	m.gone(t, reclaimed)
	m.agree(t, cache)
	quiet(t, m)
}

// stuckManager is a manager that does not answer the first Settle until its caller gives up.
type stuckManager struct {
	Manager
	begun atomic.Bool
	stuck chan struct{} // closed at that call
	cause chan error    // why the caller gave up
}

func (m *stuckManager) Settle(ctx context.Context, req *connect.Request[managerv1.SettleRequest]) (*connect.Response[managerv1.SettleResponse], error) {
	if !m.begun.Swap(true) {
		close(m.stuck)
		<-ctx.Done()
		m.cause <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	return m.Manager.Settle(ctx, req)
}

// A preempted task does not wait for a manager that does not answer: what it leaves undone is
// done after the more urgent task.
func TestNoticeWhileTheManagerDoesNotAnswer(t *testing.T) {
	m := manage(t, 2, 0)
	mgr := &stuckManager{Manager: m, stuck: make(chan struct{}), cause: make(chan error, 1)}
	cache := m.create(t, mgr, Config{Transport: "mem", Configuration: configurations[0]})
	during(t, cache, int(cache.Capacity()), func() {
		reclaimed, other := cache.Regions()[0].VM, cache.Regions()[3].VM
		migrated := make(chan error, 1)
		go func() { migrated <- cache.Migrate(t.Context(), other) }()
		testrun.Receive(t, "the migration is stuck", mgr.stuck)
		if !m.vms.Reclaim(reclaimed, time.Hour) {
			t.Fatalf("no VM %s", reclaimed)
		}
		if cause := testrun.Receive(t, "the stuck call ends", mgr.cause); !errors.Is(cause, errPreempted) {
			t.Errorf("the preempted task waited until %v", cause)
		}
		if err := testrun.Receive(t, "the migration ends", migrated); err != nil {
			t.Error(err)
		}
		m.gone(t, reclaimed)
		m.gone(t, other)
	})
	m.agree(t, cache)
	quiet(t, m)
}

// quiet fails the test if memory was lost.
func quiet(t *testing.T, m *managed) {
	t.Helper()
	for len(m.events) > 0 {
		if e := <-m.events; e.Kind == VMLost || e.Kind == DataLost {
			t.Errorf("%+v", e)
		}
	}
}

// A VM of a cache is reclaimed while the cache moves to a cheaper VM. The cache leaves the
// reclaimed VM first, and then moves to the cheaper one.
func TestNoticeWhileTheCacheSaves(t *testing.T) {
	m := sizesWith(t, 0.5, manager.Economy{Every: time.Millisecond, Dwell: time.Millisecond})
	way := &obstructed{procedure: serverv1connect.CacheServerServicePullProcedure, begun: make(chan struct{})}
	cache := m.create(t, m, Config{Transport: "mem", Configuration: configurations[0], control: &http.Client{Transport: way}})
	during(t, cache, int(cache.Capacity()), func() {
		m.price(t, 0.15)
		testrun.Receive(t, "the copy begins", way.begun)
		m.leftInTime(t, cache.Regions()[0].VM)
		testrun.Until(t, "one VM is left", func() bool { return len(m.known(t).Vms) == 1 })
	})
	m.agree(t, cache)
	quiet(t, m)
}

// A VM is reclaimed while lost memory of another VM is filled from Recover, or waits until
// OnEvent has returned.
func TestNoticeWhileLostMemoryIsRestored(t *testing.T) {
	t.Run("recover", func(t *testing.T) {
		m := manage(t, 2, 0)
		begun := make(chan struct{})
		var calls atomic.Int32
		cache := m.create(t, m, Config{
			Transport: "mem", Configuration: configurations[0],
			Recover: func(ctx context.Context, dst []byte, addr int64) error {
				if calls.Add(1) == 2 { // the first region is restored
					close(begun)
					<-ctx.Done()
					return ctx.Err()
				}
				for i := range dst {
					dst[i] = byte((addr + int64(i)) / 1000)
				}
				return nil
			},
		})
		during(t, cache, 2*managedRegion, func() {
			m.vms.Kill(cache.Regions()[3].VM)
			testrun.Receive(t, "the held call begins", begun)
			m.leftInTime(t, cache.Regions()[0].VM)
			if back := m.expect(t, Restored); back.From != 3*managedRegion || back.DataLost {
				t.Errorf("%+v", back) // the first region was restored before
			}
		})
		for i, b := range content(t, cache)[2*managedRegion:] {
			if want := byte((i + 2*managedRegion) / 1000); b != want {
				t.Fatalf("byte %d is %d, want %d", i, b, want)
			}
		}
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls for two regions, of which one was given up", n)
		}
		m.agree(t, cache)
	})
	t.Run("told", func(t *testing.T) {
		c := newCluster(t, "mem", 3, 1<<20)
		told, hold := make(chan struct{}), make(chan struct{})
		cache := c.create(t, Config{
			Capacity: 3 << 16, RegionSize: 1 << 16, Configuration: oneSided,
			OnEvent: func(e Event) {
				if e.Kind == DataLost {
					close(told)
					<-hold
				}
			},
		})
		during(t, cache, 2<<16, func() {
			cache.lose(cache.table.Load().regions.at(2).endpoint.grant, errors.New("gone"))
			testrun.Receive(t, "the loss is told", told)
			c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: "vm-0", LeftMs: time.Hour.Milliseconds()}
			testrun.Until(t, "the first region has left the reclaimed VM", func() bool { return cache.Regions()[0].VM != "vm-0" })
			close(hold)
			testrun.Until(t, "the lost memory is replaced", func() bool { return cache.Err() == nil })
		})
	})
}

// A VM is reclaimed while a new cache is filled from its file. The cache leaves the VM with
// the file's contents.
func TestNoticeWhileACacheIsFilled(t *testing.T) {
	want := make([]byte, 4<<16)
	for i := range want {
		want[i] = byte(i/1000) | 1
	}
	c := newCluster(t, "mem", 2, 1<<20)
	cache := c.create(t, Config{Capacity: int64(len(want)), RegionSize: 1 << 16, Configuration: oneSided})
	vm := cache.Regions()[0].VM
	begun := make(chan struct{})
	calls := 0
	read := func(ctx context.Context, dst []byte, addr int64) error {
		if calls++; calls == 2 {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}
		copy(dst, want[addr:])
		return nil
	}
	filled := make(chan error, 1)
	go func() {
		filled <- cache.fillFrom(t.Context(), func() (source, error) {
			return source{read: read, parallel: 1, close: func() error { return nil }}, nil
		})
	}()
	testrun.Receive(t, "the held call begins", begun)
	c.events <- &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: vm, LeftMs: time.Hour.Milliseconds()}
	if err := testrun.Receive(t, "the cache is filled", filled); err != nil {
		t.Fatal(err)
	}
	for _, r := range cache.Regions() {
		if r.VM == vm {
			t.Errorf("%+v", r)
		}
	}
	if !bytes.Equal(content(t, cache), want) {
		t.Error(testrun.WrongMark, "other bytes than the file's")
	}
}
