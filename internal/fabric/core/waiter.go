package core

import (
	"context"
	"runtime"
	"sync/atomic"
)

// Source is what a Waiter needs of a queue pair. The owner calls Wait, which calls these.
type Source interface {
	// Pollable reports whether Poll has a completion to return.
	Pollable() bool
	// Advance makes progress without waiting.
	Advance()
	// Over returns the reason why no further completion will arrive, else nil.
	Over() error
	// Park and Unpark tell producers that cannot see the Waiter that the owner is
	// asleep, or no longer is.
	Park()
	Unpark()
}

// Waiter parks an owner until another goroutine notifies it. A notifier publishes its data
// first and then calls Notify; the owner announces that it parks and then checks for data
// once more. So either the owner sees the data, or the notifier sees the announcement.
type Waiter struct {
	news   chan struct{}
	parked atomic.Bool
	woken  atomic.Bool
}

// Notified has the Park and Unpark of a Source whose producers notify the Waiter themselves.
// It is a type of its own, so that no other Source inherits them.
type Notified struct{}

func (Notified) Park()   {}
func (Notified) Unpark() {}

// InitWaiter prepares the waiter for use.
func (w *Waiter) InitWaiter() { w.news = make(chan struct{}, 1) }

// Notify wakes a parked owner. It is safe for concurrent use, and cheap if the owner is not
// parked.
func (w *Waiter) Notify() {
	if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		select {
		case w.news <- struct{}{}:
		default: // one is there already
		}
	}
}

// Wake makes the current Wait, or else the next one, return. It is safe for concurrent use.
func (w *Waiter) Wake() {
	w.woken.Store(true)
	w.Notify()
}

// Wait implements fabric.QueuePair. It checks spins times, yielding in between, before it
// parks.
func (w *Waiter) Wait(ctx context.Context, s Source, spins int) error {
	if err := w.await(ctx, s, spins); err != nil {
		return err
	}
	if err := s.Over(); err != nil && !s.Pollable() {
		return err
	}
	return nil
}

// await returns nil when there is a reason not to park, or ctx's error.
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
