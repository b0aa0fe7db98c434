// Package clock lets time run as it does, faster, or by hand: for what is simulated
// over hours and should be over in seconds.
package clock

import (
	"sync"
	"time"
)

// Clock tells a time and calls back at later ones. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once d has passed, on a goroutine of the clock's, unless the
	// timer is stopped before.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a call that is still to come.
type Timer interface {
	// Stop returns false where the call has begun already.
	Stop() bool
}

// Real is the system's clock.
func Real() Clock { return real{} }

type real struct{}

func (real) Now() time.Time                            { return time.Now() }
func (real) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Fast is a clock that shows the present now and runs so many times as fast as the
// system's from then on. times is above 0.
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

// Virtual is a clock that stands still but for Advance.
type Virtual struct {
	mu     sync.Mutex
	now    time.Time
	timers []*timer // in the order in which they were made
}

type timer struct {
	clock *Virtual
	at    time.Time
	call  func()
}

var _ Clock = (*Virtual)(nil)

// NewVirtual returns a clock that shows start.
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

// remove is called under mu.
func (v *Virtual) remove(t *timer) bool {
	for i, other := range v.timers {
		if other == t {
			v.timers = append(v.timers[:i], v.timers[i+1:]...)
			return true
		}
	}
	return false
}

// Advance lets d pass: it makes the calls that are due, one after the other in the
// order of their times, each at its time. One goroutine at a time may call it.
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
