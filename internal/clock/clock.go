// Package clock provides clocks that run in real time, or faster, for simulations of hours
// that take seconds; and waits: with jitter, and of time in which the process runs.
package clock

import "time"

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
