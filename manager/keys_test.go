package manager

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
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
