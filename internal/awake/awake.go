// Package awake waits for answers of others, and does not hold against them the time
// in which this process could not have heard one: because it was stopped, or its machine
// was.
package awake

import (
	"context"
	"sync"
	"time"
)

// slices is how many timers a wait is made of, one after the other. However late one of
// them is, it counts for no more than its slice.
const slices = 15

// WithTimeout returns a context that ends with cause once this process has run for d since,
// or as its parent does. It has no deadline. cancel is to be called, as that of
// [context.WithTimeout].
func WithTimeout(parent context.Context, d time.Duration, cause error) (_ context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	w := &wait{ctx: ctx, end: end, cause: cause, slice: d / slices, left: slices}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.slice, w.pass)
	return ctx, w.cancel
}

// wait is a context with its timer.
type wait struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	cause error
	slice time.Duration

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	left  int // slices
}

// pass ends a slice.
func (w *wait) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.left--; {
	case w.ctx.Err() != nil:
	case w.left > 0:
		w.timer.Reset(w.slice)
	default:
		w.end(w.cause)
	}
}

func (w *wait) cancel() {
	w.end(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}
