package core

import (
	"context"
	"runtime"
	"sync/atomic"
)

// Source is a queue pair as its Waiter sees it. Its owner calls Wait, and so these.
type Source interface {
	// Pollable reports whether Poll has something to return.
	Pollable() bool
	// Advance does what can be done to make it so without waiting.
	Advance()
	// Over is why nothing more will come by itself, once that is so; else nil.
	Over() error
	// Park and Unpark tell those who could make it pollable, and who cannot see
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

// Wait is that of fabric.QueuePair. It looks spins times, yielding in between,
// before it parks.
func (w *Waiter) Wait(ctx context.Context, s Source, spins int) error {
	if err := w.await(ctx, s, spins); err != nil {
		return err
	}
	if err := s.Over(); err != nil && !s.Pollable() {
		return err
	}
	return nil
}

// await returns nil once there is a reason not to park, or ctx's error.
func (w *Waiter) await(ctx context.Context, s Source, spins int) error {
	for range spins {
		if w.ready(s) {
			return nil
		}
		runtime.Gosched()
	}
	defer w.parked.Store(false)
	defer s.Unpark()
	for {
		w.parked.Store(true)
		s.Park()
		if w.ready(s) {
			return nil
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Waiter) ready(s Source) bool {
	if w.woken.Load() && w.woken.Swap(false) {
		return true
	}
	if !s.Pollable() {
		s.Advance()
	}
	return s.Pollable() || s.Over() != nil
}
