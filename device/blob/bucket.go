package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	gcblob "gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/redykv/redykv/internal/clock"
)

// bucket is a gocloud.dev bucket whose requests are retried.
type bucket struct {
	*gcblob.Bucket
	patience time.Duration
	// unconditional: writes do not depend on what exists, see Options.OnlyWriter.
	unconditional bool
	retried       func(what string, err error) // called for each failure that is retried
}

// Pauses between two attempts: they double, with jitter.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// attempt is the timeout of one attempt, or of each piece of a write.
	attempt = 30 * time.Second
)

// try calls do until it succeeds, fails permanently, or patience is over.
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

// sourceError is a permanent failure: what is to be stored cannot be read, or what was read
// is invalid.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// passing reports whether an error may be temporary.
func passing(err error) bool {
	if errors.As(err, new(*sourceError)) {
		return false
	}
	if errors.Is(err, errDamaged) {
		return true
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound, gcerrors.AlreadyExists, gcerrors.InvalidArgument, gcerrors.Unimplemented,
		gcerrors.FailedPrecondition, gcerrors.PermissionDenied:
		return false
	}
	return true
}

// notFound reports whether the error means that the bucket has no such blob.
func notFound(err error) bool { return gcerrors.Code(err) == gcerrors.NotFound }

// get reads n bytes of a blob from an offset, or up to maxCatalog if n is negative, and passes
// them to check.
func (b *bucket) get(ctx context.Context, key string, off, n int64, check func([]byte) error) error {
	return b.try(ctx, "read of "+key, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		r, err := b.NewRangeReader(ctx, key, off, n, nil)
		if err != nil {
			return err
		}
		limit := n
		if n < 0 {
			limit = maxCatalog
		}
		data := bytes.NewBuffer(make([]byte, 0, max(n, 0)+bytes.MinRead))
		_, err = data.ReadFrom(io.LimitReader(r, limit))
		if int64(data.Len()) < n && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
			err = fmt.Errorf("the blob is shorter than %d bytes: %w", off+n, errDamaged)
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		return check(data.Bytes())
	})
}

// exists reports whether the error means that a blob that must not exist is there.
func exists(err error) bool {
	code := gcerrors.Code(err)
	return code == gcerrors.FailedPrecondition || code == gcerrors.AlreadyExists
}

// probeKey is the name of a blob that stays in the bucket, see probe.
const probeKey = "probe"

// probe checks that the bucket obeys conditional writes: a blob can be created once only.
func (b *bucket) probe(ctx context.Context) error {
	for range 2 {
		err := b.put(ctx, probeKey, true, func(w io.Writer) error {
			_, err := io.WriteString(w, "This blob was created on the condition that it did not exist.\n")
			return err
		})
		if exists(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ErrUnconditional
}

// put stores a blob whole, or nothing. With create it must not exist.
func (b *bucket) put(ctx context.Context, key string, create bool, write func(w io.Writer) error) error {
	return b.try(ctx, "write of "+key, func(ctx context.Context) error {
		// Closing a writer whose context has ended drops what was written.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stalled := time.AfterFunc(attempt, cancel)
		defer stalled.Stop()
		w, err := b.NewWriter(ctx, key, &gcblob.WriterOptions{
			ContentType: "application/octet-stream", DisableContentTypeDetection: true, IfNotExist: create && !b.unconditional,
		})
		if err != nil {
			return err
		}
		if err := write(&watched{w, stalled}); err != nil {
			cancel()
			_ = w.Close() // it returns that its context has ended
			return err
		}
		return w.Close()
	})
}

// watched is a writer that extends a timeout with every piece of a write.
type watched struct {
	w     io.Writer
	alarm *time.Timer
}

// maxPiece bounds a piece of a write, so that a slow link sends one within the timeout.
const maxPiece = 4 << 10

func (w *watched) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		var n int
		n, err = w.w.Write(p[:min(len(p), maxPiece)])
		w.alarm.Reset(attempt)
		written += n
		p = p[n:]
	}
	return written, err
}

// remove deletes a blob, if it exists.
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

// list returns the blobs whose names begin with a prefix, with their sizes.
func (b *bucket) list(ctx context.Context, prefix string) (sizes map[string]int64, err error) {
	err = b.try(ctx, "list", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		sizes = make(map[string]int64)
		for it := b.List(&gcblob.ListOptions{Prefix: prefix}); ; {
			o, err := it.Next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			sizes[o.Key] = o.Size
		}
	})
	return sizes, err
}

// sizes returns the sizes of blobs, without those that do not exist.
func (b *bucket) sizes(ctx context.Context, keys []string) (map[string]int64, error) {
	sizes := make(map[string]int64, len(keys))
	for _, key := range keys {
		err := b.try(ctx, "look at "+key, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, attempt)
			defer cancel()
			a, err := b.Attributes(ctx, key)
			if err == nil {
				sizes[key] = a.Size
			}
			return err
		})
		if err != nil && !notFound(err) {
			return nil, err
		}
	}
	return sizes, nil
}
