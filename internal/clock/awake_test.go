package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errSilent = errors.New("no answer")

// The context ends after its time, with its parent, or when it is cancelled.
func TestWithAwakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 15 * time.Second
		ctx, cancel := WithAwakeTimeout(t.Context(), patience, errSilent)
		time.Sleep(patience - 1)
		if ctx.Err() != nil {
			t.Errorf("too early: %v", context.Cause(ctx))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if err := context.Cause(ctx); !errors.Is(err, errSilent) {
			t.Errorf("cause %v, want %v", err, errSilent)
		}
		cancel()

		parent, end := context.WithCancelCause(t.Context())
		ctx, cancel = WithAwakeTimeout(parent, patience, errSilent)
		end(errors.ErrUnsupported)
		if err := context.Cause(ctx); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("cause %v, want the parent's", err)
		}
		cancel()

		ctx, cancel = WithAwakeTimeout(t.Context(), patience, errSilent)
		cancel()
		time.Sleep(2 * patience)
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cause %v, want %v", err, context.Canceled)
		}
	})
}
