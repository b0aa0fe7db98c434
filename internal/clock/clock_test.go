package clock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestVirtual(t *testing.T) {
	start := time.Unix(1000, 0)
	v := NewVirtual(start)
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

func TestFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Fast(60)
		start := c.Now()
		called := make(chan time.Time)
		c.AfterFunc(time.Minute, func() { called <- c.Now() })
		if at := <-called; at.Sub(start) != time.Minute || time.Since(start) != time.Second {
			t.Errorf("called after %v, %v of the system's time; want 1m and 1s", at.Sub(start), time.Since(start))
		}
		if !c.AfterFunc(time.Hour, func() { t.Error("called") }).Stop() {
			t.Error("a timer that is not due cannot be stopped")
		}
		if before := Real().Now(); !before.Equal(time.Now()) {
			t.Errorf("the real clock shows %v at %v", before, time.Now())
		}
	})
}
