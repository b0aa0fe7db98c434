package hlog

import (
	"context"
	"fmt"
	"os"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// The ring of frames is address space for the largest number of resident pages. The present
// number is compared when a page is opened and when one is evicted.

// mutable is the number of pages that are updated in place. The caller holds mu.
func (l *Log) mutable() int64 { return MutablePages(l.frames.Load(), l.fraction) }

// MutablePages returns the number of pages that are updated in place, of those in memory, for
// that Config.MutableFraction.
func MutablePages(resident int64, fraction float64) int64 {
	return min(max(int64(float64(resident)*fraction), 1), resident-MinFrames+1)
}

// Resize changes the bytes of the log that may be in memory, while sessions use it. If it
// lowers them, it returns when the memory was released: when the pages have been written to
// all tiers, no session is inside an earlier epoch, and they are not held. Meanwhile Allocate goes
// on: one page is opened for two that are evicted. A size that is not
// possible is an error and changes nothing. If the log fails meanwhile, its device has no space, or
// ctx ends, the log keeps the bytes that it had; pages that were evicted stay so.
func (l *Log) Resize(ctx context.Context, memory int64) error {
	frames := memory >> l.pageBits
	switch {
	case frames < MinFrames:
		return tooLittle(memory, l.pageSize)
	case frames<<l.pageBits > int64(len(l.ring)):
		return fmt.Errorf("hlog: memory of %v: the log was opened for at most %v", units.Size(memory), units.Size(len(l.ring)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.frames.Load()
	err := l.failure()
	if err == nil {
		l.frames.Store(frames)
		l.surplus = max(l.surplus+2*(before-frames), 0) // twice the pages that may be open beyond frames
		l.readOnly.raise((l.tailPage() - l.mutable()) << l.pageBits)
		l.progress.Broadcast() // there may be space now
		l.wake()
		err = l.await(ctx, func() bool { return l.tailPage()-l.safeHead.load()>>l.pageBits < l.frames.Load() })
	}
	l.surplus = 0
	if err != nil {
		l.frames.Store(before)
		l.progress.Broadcast() // there is space again
		return fmt.Errorf("hlog: resizing to %v: %w", units.Size(memory), err)
	}
	// mu keeps pages from being opened. The frames of the others are free.
	l.discard(l.tailPage()+1, l.safeHead.load()>>l.pageBits+int64(len(l.ring))>>l.pageBits)
	return nil
}

func (l *Log) tailPage() int64 { return position(l.tail.Load()).page() }

// discard releases the memory of the frames of pages [from, to), which are free. Frames
// smaller than the system's pages stay.
func (l *Log) discard(from, to int64) {
	if l.pageSize < os.Getpagesize() {
		return
	}
	for from < to {
		n := min((to-from)<<l.pageBits, int64(len(l.ring))-from<<l.pageBits&l.ringMask) // up to the ring's end
		if err := mem.Discard(l.frame(from<<l.pageBits, int(n))); err != nil {
			l.logger.Warn("giving memory of evicted pages back", "err", err)
		}
		from += n >> l.pageBits
	}
}

func tooLittle(memory int64, pageSize int) error {
	return fmt.Errorf("hlog: memory of %v is too little for pages of %v: want at least %v",
		units.Size(memory), units.Size(pageSize), units.Size(MinFrames*int64(pageSize)))
}
