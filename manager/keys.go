package manager

import (
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Pauses before a failed step is repeated.
const (
	firstRetry = 50 * time.Millisecond
	maxRetry   = 30 * time.Second
)

// queue is a queue of reconcilers' keys. A key is in it once, and not handed out twice at a time.
type queue struct {
	workqueue.TypedRateLimitingInterface[string]
	does string // with a key; for people
}

// keys are the queues of the reconcilers' keys, with reconcilers of their own: what was lost is
// replaced while what is over waits for servers and VMs that do not answer, and requests are granted
// while launches of others hang.
type keys struct {
	counts *keyCounts // of all
	vms    queue
	ends   queue // of grants that are taken back, and of VMs that are terminated
	caches queue
}

func newKeys() keys {
	c := new(keyCounts)
	queue := func(does string) queue {
		return queue{does: does, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "manager", MetricsProvider: c},
		)}
	}
	return keys{counts: c, vms: queue("step"), ends: queue("end"), caches: queue("step")}
}

// of returns the queue for a key of which nothing is known but what it is.
func (k *keys) of(key string) queue {
	switch {
	case strings.HasPrefix(key, grantPrefix):
		return k.ends
	case strings.HasPrefix(key, cachePrefix):
		return k.caches
	}
	return k.vms
}

func (k *keys) all() []queue { return []queue{k.vms, k.ends, k.caches} }

func (k *keys) add(key string) { k.of(key).Add(key) }

func (k *keys) addAfter(key string, d time.Duration) { k.of(key).AddAfter(key, d) }

func (k *keys) shutDown() {
	for _, q := range k.all() {
		q.ShutDown()
	}
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
