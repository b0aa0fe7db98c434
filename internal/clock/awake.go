package clock

import (
	"context"
	"sync"
	"time"
)

// awakeSlices is the number of timers, one after the other, that an awake timeout is made of.
// However late one of them fires, it counts for no more than its slice.
const awakeSlices = 15

// WithAwakeTimeout returns a context that ends with cause after this process has run for
// d, or when its parent ends. Time in which the process or its machine was stopped does
// not count: the answer that is waited for could not have been received then. The context
// has no deadline. cancel must be called, as that of [context.WithTimeout].
func WithAwakeTimeout(parent context.Context, d time.Duration, cause error) (_ context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	w := &awakeTimer{ctx: ctx, end: end, cause: cause, slice: d / awakeSlices, left: awakeSlices}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.slice, w.endSlice)
	return ctx, w.cancel
}

// awakeTimer ends a context after a number of slices.
type awakeTimer struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	cause error
	slice time.Duration

	mu    sync.Mutex // guards timer and left
	timer *time.Timer
	left  int // slices
}

func (w *awakeTimer) endSlice() {
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

func (w *awakeTimer) cancel() {
	w.end(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}
