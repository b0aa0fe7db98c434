package manager

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Pauses before a failed step is repeated.
const (
	firstRetry = 50 * time.Millisecond
	maxRetry   = 30 * time.Second
)

// keys is the queue of the reconcilers' keys. A key is in it once, and not handed out twice at
// a time.
type keys struct {
	workqueue.TypedRateLimitingInterface[string]
	counts *keyCounts
}

func newKeys() keys {
	c := new(keyCounts)
	return keys{counts: c, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, maxRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "manager", MetricsProvider: c},
	)}
}

// keyCounts counts keys. It implements [workqueue.MetricsProvider]. It uses the queue's metrics of
// added and finished keys. Those of waiting and of handed-out keys change one after the other, so
// that for a moment a key is in neither.
type keyCounts struct {
	pending atomic.Int64 // keys that wait or are worked on
	done    atomic.Int64 // steps that have ended
}

// added is the number of keys that were added, but for those that waited already.
type added struct{ *keyCounts }

func (a added) Inc() { a.pending.Add(1) }

// worked observes the durations of steps.
type worked struct{ *keyCounts }

func (w worked) Observe(float64) {
	w.done.Add(1) // before idle can be true
	w.pending.Add(-1)
}

// unused is a metric that is not kept.
type unused struct{}

func (unused) Inc()            {}
func (unused) Dec()            {}
func (unused) Set(float64)     {}
func (unused) Observe(float64) {}

func (c *keyCounts) NewDepthMetric(string) workqueue.GaugeMetric            { return unused{} }
func (c *keyCounts) NewAddsMetric(string) workqueue.CounterMetric           { return added{c} }
func (c *keyCounts) NewLatencyMetric(string) workqueue.HistogramMetric      { return unused{} }
func (c *keyCounts) NewWorkDurationMetric(string) workqueue.HistogramMetric { return worked{c} }
func (c *keyCounts) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return unused{}
}
func (c *keyCounts) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return unused{}
}
func (c *keyCounts) NewRetriesMetric(string) workqueue.CounterMetric { return unused{} }

// idle reports whether no key waits or is worked on. A key whose step is repeated later does
// not count.
func (c *keyCounts) idle() bool { return c.pending.Load() == 0 }
