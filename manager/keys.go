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

// keyCounts counts keys. It implements [workqueue.MetricsProvider].
type keyCounts struct {
	waiting, taken, done, retries counter
}

// counter is a metric of the queue: a gauge, a counter, or the number of observations.
type counter struct{ atomic.Int64 }

func (c *counter) Inc()            { c.Add(1) }
func (c *counter) Dec()            { c.Add(-1) }
func (c *counter) Observe(float64) { c.Add(1) }

// unused is a metric that is not kept.
type unused struct{}

func (unused) Inc()        {}
func (unused) Set(float64) {}

func (c *keyCounts) NewDepthMetric(string) workqueue.GaugeMetric            { return &c.waiting }
func (c *keyCounts) NewAddsMetric(string) workqueue.CounterMetric           { return unused{} }
func (c *keyCounts) NewLatencyMetric(string) workqueue.HistogramMetric      { return &c.taken }
func (c *keyCounts) NewWorkDurationMetric(string) workqueue.HistogramMetric { return &c.done }
func (c *keyCounts) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return unused{}
}
func (c *keyCounts) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return unused{}
}
func (c *keyCounts) NewRetriesMetric(string) workqueue.CounterMetric { return &c.retries }

// idle reports whether no key waits or is worked on. A key whose step is repeated later does
// not count.
func (c *keyCounts) idle() bool {
	done := c.done.Load()
	return c.waiting.Load() == 0 && c.taken.Load() == done
}
