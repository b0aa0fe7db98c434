package cache

import (
	"context"
	"runtime"
	"time"

	"github.com/redykv/redykv/internal/mem"
)

// yardstick is a plain copy in memory, with which a migration is compared. Like a cache's,
// its memory is in huge pages, if there are any, and touched. Its pieces are long enough
// for a copy that bypasses the processor's caches.
type yardstick struct{ src, dst []byte }

const (
	yardSize  = 256 << 20 // too large for caches
	yardPiece = 1 << 20
)

func newYardstick() (*yardstick, error) {
	src, err := mem.Alloc(yardSize)
	if err != nil {
		return nil, err
	}
	dst, err := mem.Alloc(yardSize)
	if err != nil {
		_ = mem.Free(src) // cannot fail: it is a whole allocation
		return nil, err
	}
	for i := 0; i < yardSize; i += 4096 {
		src[i], dst[i] = 1, 1 // otherwise reads would hit one cached page of zeros
	}
	return &yardstick{src, dst}, nil
}

func (y *yardstick) close() {
	_ = mem.Free(y.src)
	_ = mem.Free(y.dst)
}

// rate returns the rate of copying in bytes a second, the best of some tries.
func (y *yardstick) rate() float64 {
	best := 0.0
	for range 3 {
		began := time.Now()
		copy(y.dst, y.src)
		best = max(best, yardSize/time.Since(began).Seconds())
	}
	return best
}

// copyWithin copies n bytes on a separate thread, evenly within d, or as fast as possible if
// that takes longer.
func (y *yardstick) copyWithin(ctx context.Context, n int64, d time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // ends with the goroutine, and so does the thread
		// Only ctx ends it early.
		_ = paced(ctx, n, yardPiece, d, func(at, size int64) error {
			copy(y.dst[at:at+size], y.src[at:])
			return nil
		})
	}()
	<-done
}

// paced calls do for n bytes in pieces, each at an offset in the memory, evenly within d or as fast as
// possible if that takes longer. An error of do, or the end of ctx, ends it.
func paced(ctx context.Context, n, piece int64, d time.Duration, do func(at, size int64) error) error {
	began := time.Now()
	for done := int64(0); done < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		size := min(piece, n-done)
		if err := do(done%yardSize, size); err != nil {
			return err
		}
		done += size
		time.Sleep(time.Until(began.Add(time.Duration(float64(done) / float64(n) * float64(d)))))
	}
	return nil
}
