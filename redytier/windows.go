package redytier

import (
	"slices"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

const (
	// windowLength is the default of Config.Window, and the others are its bounds.
	windowLength = 5 * time.Second
	leastWindow  = 10 * time.Millisecond
	mostWindow   = time.Hour
	// maxWindows bounds the windows that wait for a renewal of the lease.
	maxWindows = 64
)

// windows are what the cache gave in the last windows, which the manager gets with the renewals of
// the lease. It is safe for concurrent use.
type windows struct {
	mu     sync.Mutex     // guards the rest
	began  time.Time      // of the present window
	before [2]figures     // sums at its begin, by kind
	number uint64         // of the last window that was not empty
	waits  []closedWindow // not received by the manager, as far as is known; the oldest first
}

// closedWindow is a window that has ended.
type closedWindow struct {
	ended   time.Time
	message *managerv1.Window // without the time since its end
}

// measure ends a window now and then, until the cache is deleted.
func (c *Cache) measure() {
	for clock.Sleep(c.ctx, c.cfg.Window) {
		c.windows.end(time.Now(), c.figures(c.cfg.Window))
	}
}

// figures returns the sums over all sessions, open and closed, and begins the intervals of the open
// ones anew. Operations that have been pending for that long are stuck.
func (c *Cache) figures(long time.Duration) [2]figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.pastFigures
	for s := range c.sessions {
		s.addFigures(&all)
		if age, write, pending := s.timing.pendingFor(); age >= long {
			f := &all[kind(write)]
			f.stuck += uint64(pending)
			f.stuckFor = max(f.stuckFor, age)
		}
		s.timing.restart.Store(true)
	}
	return all
}

// end ends the present window with the sums at its end. An empty window is left out.
func (w *windows) end(now time.Time, all [2]figures) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lasted := now.Sub(w.began)
	reads := got(all[0].since(&w.before[0]), lasted)
	writes := got(all[1].since(&w.before[1]), lasted)
	w.began, w.before = now, all
	if reads == nil && writes == nil {
		return
	}
	w.number++
	w.waits = append(w.waits, closedWindow{now, &managerv1.Window{Number: w.number, LastedMs: lasted.Milliseconds(), Reads: reads, Writes: writes}})
	if len(w.waits) > maxWindows {
		w.waits = slices.Delete(w.waits, 0, 1)
	}
}

// got returns what operations of a kind got in a window; nil: there were none, or none was timed
// yet. The mean number in flight follows by Little's law.
func got(d *figures, lasted time.Duration) *managerv1.Measured {
	if d.weight == 0 && d.stuck == 0 || lasted < time.Millisecond {
		return nil
	}
	const us = float64(time.Microsecond)
	m := &managerv1.Measured{ThroughputMops: float64(d.operations) / (float64(lasted) / us)}
	if d.operations > 0 {
		m.RecordSize = uint32(min(d.bytes/d.operations, maxAccess))
	}
	if d.weight > 0 {
		m.MeanLatencyUs = float64(d.sum) / float64(d.weight) / us
		m.P99LatencyUs = float64(d.quantile(0.99)) / us
		m.InFlight = m.ThroughputMops * m.MeanLatencyUs
	}
	if d.operations == 0 && d.stuck > 0 { // a cache that does not answer has no completions to tell of
		m.MeanLatencyUs, m.P99LatencyUs, m.InFlight = float64(d.stuckFor)/us, float64(d.stuckFor)/us, float64(d.stuck)
	}
	return m
}

// waiting returns the windows that the manager has not received.
func (w *windows) waiting(now time.Time) []*managerv1.Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*managerv1.Window
	for _, m := range w.waits {
		all = append(all, &managerv1.Window{
			Number: m.message.Number, EndedAgoMs: max(0, now.Sub(m.ended).Milliseconds()),
			LastedMs: m.message.LastedMs, Reads: m.message.Reads, Writes: m.message.Writes,
		})
	}
	return all
}

// received drops windows that the manager has received or refused.
func (w *windows) received(some []*managerv1.Window) {
	if len(some) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = slices.DeleteFunc(w.waits, func(m closedWindow) bool { return m.message.Number <= some[len(some)-1].Number })
}
