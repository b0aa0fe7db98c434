package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	gcblob "gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/redykv/redykv/internal/clock"
)

// bucket is a gocloud.dev bucket whose requests are tried again.
type bucket struct {
	*gcblob.Bucket
	patience time.Duration
	retried  func(what string, err error) // told of each failure that is tried again
}

// Times between one try and the next: they double, and half of each is left to chance,
// so that many that failed together do not come back together.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// attempt is how long one try may take, of a write from one piece to the next:
	// none hangs for good.
	attempt = 30 * time.Second
)

// try calls do until it succeeds, fails in a way that time does not mend, or patience is
// at its end.
func (b *bucket) try(ctx context.Context, what string, do func(ctx context.Context) error) error {
	deadline := time.Now().Add(b.patience)
	for most := firstPause; ; most = min(2*most, lastPause) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("blob: %s: %w", what, err)
		wait := clock.Jitter(most)
		if ctx.Err() != nil || !passing(err) || time.Now().Add(wait).After(deadline) {
			return err
		}
		b.retried(what, err)
		if !clock.Sleep(ctx, wait) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// sourceError is what no other try mends: what was to be stored cannot be read, or what
// was read makes no sense.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// passing reports whether what failed may succeed another time.
func passing(err error) bool {
	if errors.As(err, new(*sourceError)) {
		return false
	}
	if errors.Is(err, errDamaged) {
		return true // on its way, perhaps
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound, gcerrors.AlreadyExists, gcerrors.InvalidArgument, gcerrors.Unimplemented,
		gcerrors.FailedPrecondition, gcerrors.PermissionDenied:
		return false
	}
	return true
}

// notFound says that the bucket has no such blob.
func notFound(err error) bool { return gcerrors.Code(err) == gcerrors.NotFound }

// get reads n bytes of a blob from an offset, and hands them to check.
func (b *bucket) get(ctx context.Context, key string, off, n int64, check func([]byte) error) error {
	return b.try(ctx, "read of "+key, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		r, err := b.NewRangeReader(ctx, key, off, n, nil)
		if err != nil {
			return err
		}
		data := make([]byte, n)
		_, err = io.ReadFull(r, data)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("it is shorter than %d bytes: %w", off+n, errDamaged)
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		return check(data)
	})
}

// put stores a blob whole, or nothing. With create it must not be there.
func (b *bucket) put(ctx context.Context, key string, create bool, write func(w io.Writer) error) error {
	return b.try(ctx, "write of "+key, func(ctx context.Context) error {
		// Closing a writer whose context has ended drops what was written.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stalled := time.AfterFunc(attempt, cancel)
		defer stalled.Stop()
		w, err := b.NewWriter(ctx, key, &gcblob.WriterOptions{
			ContentType: "application/octet-stream", DisableContentTypeDetection: true, IfNotExist: create,
		})
		if err != nil {
			return err
		}
		if err := write(&watched{w, stalled}); err != nil {
			cancel()
			_ = w.Close() // it says that its context has ended
			return err
		}
		return w.Close()
	})
}

// watched is a writer that puts off an alarm with every write.
type watched struct {
	w     io.Writer
	alarm *time.Timer
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.alarm.Reset(attempt)
	return n, err
}

// remove deletes a blob, if it is there.
func (b *bucket) remove(ctx context.Context, key string) error {
	err := b.try(ctx, "removal of "+key, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		return b.Delete(ctx, key)
	})
	if notFound(err) {
		return nil
	}
	return err
}

// list calls f with the names of the blobs that begin with a prefix, in order.
func (b *bucket) list(ctx context.Context, prefix string, f func(key string)) error {
	var keys []string
	err := b.try(ctx, "list", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		keys = keys[:0]
		for it := b.List(&gcblob.ListOptions{Prefix: prefix}); ; {
			o, err := it.Next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			keys = append(keys, o.Key)
		}
	})
	for _, key := range keys {
		f(key)
	}
	return err
}
