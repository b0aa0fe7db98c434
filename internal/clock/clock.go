// Package clock provides clocks that run in real time, faster, or by hand, for simulations
// of hours that take seconds; and waits: with jitter, and of time in which the process runs.
package clock

import (
	"sync"
	"time"
)

// Clock tells the time and calls functions later. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f after d, on a goroutine of the clock's, unless the timer is stopped
	// before.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of AfterFunc.
type Timer interface {
	// Stop returns false if the call has already begun.
	Stop() bool
}

// Real is the system's clock.
func Real() Clock { return real{} }

type real struct{}

func (real) Now() time.Time                            { return time.Now() }
func (real) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Fast returns a clock that starts at the system's present time and runs times as fast as
// the system's clock. times is above 0.
func Fast(times float64) Clock { return fast{start: time.Now(), times: times} }

type fast struct {
	start time.Time
	times float64
}

func (c fast) Now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.start)) * c.times))
}

func (c fast) AfterFunc(d time.Duration, f func()) Timer {
	return time.AfterFunc(time.Duration(float64(d)/c.times), f)
}

// Virtual is a clock that only Advance moves.
type Virtual struct {
	mu     sync.Mutex // guards now and timers
	now    time.Time
	timers []*timer // in the order in which they were created
}

type timer struct {
	clock *Virtual
	at    time.Time
	call  func()
}

var _ Clock = (*Virtual)(nil)

// NewVirtual returns a clock whose time is start.
func NewVirtual(start time.Time) *Virtual { return &Virtual{now: start} }

// Now implements [Clock].
func (v *Virtual) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// AfterFunc implements [Clock]: f is called by Advance.
func (v *Virtual) AfterFunc(d time.Duration, f func()) Timer {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := &timer{clock: v, at: v.now.Add(max(0, d)), call: f}
	v.timers = append(v.timers, t)
	return t
}

// Stop implements [Timer].
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.remove(t)
}

// remove takes a timer out; the caller holds mu.
func (v *Virtual) remove(t *timer) bool {
	for i, other := range v.timers {
		if other == t {
			v.timers = append(v.timers[:i], v.timers[i+1:]...)
			return true
		}
	}
	return false
}

// Advance moves the clock by d and makes the calls that become due, one after the other in
// the order of their times, each at its time. One goroutine at a time may call it.
func (v *Virtual) Advance(d time.Duration) {
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
