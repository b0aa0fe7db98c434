package manager

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"k8s.io/client-go/util/workqueue"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/allocator"
)

// observed calls at when the queue has changed one of its metrics of keys that wait. The queue
// changes several, one after the other.
type observed struct {
	*keyCounts
	at func()
}

type observedGauge struct {
	workqueue.GaugeMetric
	at func()
}

func (o observed) NewDepthMetric(name string) workqueue.GaugeMetric {
	return observedGauge{o.keyCounts.NewDepthMetric(name), o.at}
}

func (g observedGauge) Inc() {
	g.GaugeMetric.Inc()
	g.at()
}

func (g observedGauge) Dec() {
	g.GaugeMetric.Dec()
	g.at()
}

// The queue is not idle from a key's Add until its Done, nor while it hands the key out.
func TestKeysAreIdle(t *testing.T) {
	counts, calls := new(keyCounts), 0
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "test", MetricsProvider: observed{counts, func() {
		calls++
		if counts.idle() {
			t.Errorf("change %d of the metrics: idle", calls)
		}
	}}})
	defer q.ShutDown()
	pending := func(what string) {
		t.Helper()
		if counts.idle() {
			t.Errorf("%s: idle", what)
		}
	}
	q.Add("key")
	q.Add("key")
	pending("added twice")
	key, _ := q.Get()
	pending("handed out")
	q.Add(key)
	q.Done(key)
	pending("added while it was worked on")
	key, _ = q.Get()
	q.Done(key)
	if !counts.idle() {
		t.Errorf("%d keys are pending at the end", counts.pending.Load())
	}
	if calls != 4 {
		t.Errorf("%d changes of the metrics, want 4", calls)
	}
}

// lingering is an allocator whose VMs are silent, and do not end.
type lingering struct {
	deaf

	launches *atomic.Int32
}

func (a lingering) Launch(context.Context, allocator.VMSpec) error {
	a.launches.Add(1)
	return nil
}

func (a lingering) Terminate(context.Context, string, string) error {
	<-a.until
	return nil
}

// A VM is launched while more than reconcilers of those that have failed do not end.
func TestLaunchBesideTerminations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lingering{deaf{until: make(chan struct{})}, new(atomic.Int32)}
		m, err := New(Options{Allocator: struct{ allocator.Allocator }{a}, Lease: -1, Heartbeat: time.Hour, LaunchTimeout: time.Hour, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close(context.Background()) }()
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		allocate := func() {
			calls.Go(func() {
				_, _ = service{m: m}.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20}))
			})
			synctest.Wait()
		}
		const lost = 2 * reconcilers
		for range lost {
			allocate()
		}
		l := m.led()
		launched, _ := l.state.launchedIDs()
		if len(launched) != lost {
			t.Fatalf("%d VMs are launched, want %d", len(launched), lost)
		}
		for _, id := range launched {
			l.fail(id, nil, "lost")
		}
		time.Sleep(maxBackoff) // their kind is launched again
		allocate()
		if n := a.launches.Load(); n != lost+1 {
			t.Errorf("%d launches, want %d: the last one waits for VMs to end", n, lost+1)
		}
		close(a.until)
		cancel()
		calls.Wait()
	})
}
