package menu

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

// manual is a clock that only Advance moves.
type manual struct {
	mu     sync.Mutex // guards now and timers
	now    time.Time
	timers []*timer // in the order in which they were created
}

type timer struct {
	clock *manual
	at    time.Time
	call  func()
}

// newManual returns a clock whose time is start.
func newManual(start time.Time) *manual { return &manual{now: start} }

// Now implements [clock.Clock].
func (v *manual) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// AfterFunc implements [clock.Clock]: f is called by Advance.
func (v *manual) AfterFunc(d time.Duration, f func()) clock.Timer {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := &timer{clock: v, at: v.now.Add(max(0, d)), call: f}
	v.timers = append(v.timers, t)
	return t
}

// Stop implements [clock.Timer].
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.remove(t)
}

// remove takes a timer out; the caller holds mu.
func (v *manual) remove(t *timer) bool {
	before := len(v.timers)
	v.timers = slices.DeleteFunc(v.timers, func(other *timer) bool { return other == t })
	return len(v.timers) < before
}

// Advance moves the clock by d and makes the calls that become due, one after the other in
// the order of their times, each at its time. One goroutine at a time may call it.
func (v *manual) Advance(d time.Duration) {
	v.mu.Lock()
	end := v.now.Add(d)
	for {
		var next *timer
		for _, t := range v.timers {
			if !t.at.After(end) && (next == nil || t.at.Before(next.at)) {
				next = t
			}
		}
		if next == nil {
			break
		}
		v.remove(next)
		v.now = next.at
		v.mu.Unlock()
		next.call()
		v.mu.Lock()
	}
	v.now = end
	v.mu.Unlock()
}

func TestManual(t *testing.T) {
	start := time.Unix(1000, 0)
	v := newManual(start)
	var calls []string
	note := func(what string) func() {
		return func() { calls = append(calls, what+" at "+v.Now().Sub(start).String()) }
	}
	v.AfterFunc(3*time.Second, note("third"))
	v.AfterFunc(time.Second, func() {
		note("first")()
		v.AfterFunc(time.Second, note("second"))
		v.AfterFunc(-time.Second, note("at once"))
	})
	stopped := v.AfterFunc(2*time.Second, note("never"))
	v.AfterFunc(10*time.Second, note("late"))
	if !stopped.Stop() || stopped.Stop() {
		t.Error("a timer is stopped once")
	}
	v.Advance(5 * time.Second)
	want := []string{"first at 1s", "at once at 1s", "second at 2s", "third at 3s"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
	if passed := v.Now().Sub(start); passed != 5*time.Second {
		t.Errorf("%v have passed, want 5s", passed)
	}
}
