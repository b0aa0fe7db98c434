package clock

import (
	"context"
	"time"
)

// HalfOf returns a context that ends after half of the time until ctx's deadline, if it has
// one: the other half is left for another attempt.
func HalfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}
