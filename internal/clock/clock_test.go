package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

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
