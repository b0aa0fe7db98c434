package device

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

// ErrTransient means that an operation had no effect because the process or the machine was
// short of a resource, such as file descriptors or memory. It may be tried again, see
// [Retry].
var ErrTransient = errors.New("device: temporarily short of resources")

// transientErrnos are the system errors of calls that had no effect and may succeed later.
var transientErrnos = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN,
}

// MarkTransient wraps an error in [ErrTransient] if it is a system error of that kind. It
// is for calls that may be repeated, unlike fsync, after whose failure the state of the disk
// is unknown.
func MarkTransient(err error) error {
	for _, errno := range transientErrnos {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrTransient, err)
		}
	}
	return err
}

// RetryTime is how long [Retry] repeats an operation.
const RetryTime = 5 * time.Second

// Pauses between two attempts.
const (
	firstRetry = time.Millisecond
	lastRetry  = 250 * time.Millisecond
)

// Retry calls do until it does not fail with [ErrTransient], [RetryTime] has passed, or ctx
// ends. It returns the last error of do.
func Retry(ctx context.Context, do func() error) error {
	began := time.Now()
	for rest := firstRetry; ; rest = min(2*rest, lastRetry) {
		err := do()
		if !errors.Is(err, ErrTransient) || time.Since(began) > RetryTime {
			return err
		}
		if !clock.Sleep(ctx, clock.Jitter(rest)) {
			return errors.Join(err, ctx.Err())
		}
	}
}
