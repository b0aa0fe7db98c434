package redytier

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
)

// The manager learns where regions have moved although a read is pending where they were, however
// long its owner does not poll it: a client that takes the cache up finds them.
func TestPlacesWithReadsPending(t *testing.T) {
	const region = 16 << 10
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, scheduleMenu(region), nil)
		cache, err := Create(t.Context(), w.client, w.config(Config{Capacity: 8 * region, RegionSize: region, Configuration: oneSided}))
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		s, err := cache.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Read(make([]byte, 8), 0, 1), s.Submit()); err != nil {
			t.Fatal(err)
		}
		if err := cache.Migrate(t.Context(), cache.Regions()[0].VM); err == nil {
			t.Error("a region's former memory is returned while it is read")
		}
		id := cache.Identity()
		next, err := Create(t.Context(), w.client, w.config(Config{Capacity: 8 * region, Attach: &id}))
		if err != nil {
			t.Fatal(err)
		}
		checkMarks(t, next)
		for done := make([]device.Completion, 1); s.Poll(done) == 0; {
			time.Sleep(time.Millisecond)
		}
		if err := errors.Join(s.Close(), next.Delete(t.Context())); err != nil {
			t.Error(err)
		}
		if err := cache.Delete(t.Context()); err != nil && !errors.Is(err, ErrTaken) {
			t.Errorf("the former client: %v", err)
		}
		w.close()
	})
}

// Memory that nobody accesses stays, though no session is connected to it. A server's word that
// it does not lend it any more is a loss.
func TestUnusedMemoryStays(t *testing.T) {
	const region = 16 << 10
	synctest.Test(t, func(t *testing.T) {
		w := newScheduleWorld(t, scheduleMenu(region), nil)
		events := make(chan Event, 16)
		cache, err := Create(t.Context(), w.client, w.config(Config{
			Capacity: 8 * region, RegionSize: region, Configuration: oneSided, OnEvent: func(e Event) { events <- e },
		}))
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		if err := cache.Migrate(t.Context(), cache.Regions()[0].VM); err != nil {
			t.Fatal(err)
		}
		for range 2 { // nobody reads what has moved
			time.Sleep(10 * time.Minute)
			for vm, caches := range w.cloud.lent() {
				if caches[cache.ID()] != 2*region {
					t.Errorf("VM %s lends %v after ten minutes", vm, caches)
				}
			}
		}
		checkMarks(t, cache)
		for len(events) > 0 {
			if e := <-events; e.Kind != VMLeft {
				t.Errorf("%+v", e)
			}
		}
		taken := cache.Regions()[2].VM
		w.cloud.takeBack(t, taken)
		time.Sleep(time.Minute)
		select {
		case e := <-events:
			if e.Kind != VMLost || e.VM != taken || e.From != 2*region || e.To != 4*region {
				t.Errorf("%+v, want the loss of VM %s", e, taken)
			}
		default:
			t.Errorf("no event tells that VM %s has taken its memory back", taken)
		}
		sleepUntil(t, "the memory is replaced", func() bool { return cache.Err() == nil })
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		w.close()
	})
}
