package core

import (
	"context"
	"runtime"
	"sync/atomic"
)

// Source is what an owner waits for.
type Source interface {
	// Ready reports whether there is a reason not to park. It may do work.
	Ready() bool
	// Park and Unpark tell those who could make it ready, and who cannot see
	// the Waiter, that the owner is asleep or no longer is.
	Park()
	Unpark()
}

// Waiter lets an owner park until somebody has news for it. Others publish
// their news first and call Notify after; the owner announces that it parks and
// looks for news once more after that. Either the owner sees the news or the
// other side sees the announcement.
type Waiter struct {
	news   chan struct{}
	parked atomic.Bool
	woken  atomic.Bool
}

// Init prepares the waiter for use.
func (w *Waiter) Init() { w.news = make(chan struct{}, 1) }

// Notify makes a parked owner look again. Any goroutine; cheap when nobody is
// parked.
func (w *Waiter) Notify() {
	if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		select {
		case w.news <- struct{}{}:
		default: // one is there already
		}
	}
}

// Wake makes the Wait under way, or else the next one, return. Any goroutine.
func (w *Waiter) Wake() {
	w.woken.Store(true)
	w.Notify()
}

// Wait returns nil once s is ready or Wake was called, or ctx's error. It looks
// spins times, yielding in between, before it parks.
func (w *Waiter) Wait(ctx context.Context, s Source, spins int) error {
	for range spins {
		if w.over(s) {
			return nil
		}
		runtime.Gosched()
	}
	defer w.parked.Store(false)
	defer s.Unpark()
	for {
		w.parked.Store(true)
		s.Park()
		if w.over(s) {
			return nil
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Waiter) over(s Source) bool {
	return (w.woken.Load() && w.woken.Swap(false)) || s.Ready()
}
