package hlog

import (
	"fmt"
	"os"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// The ring of frames is address space for as many pages as ever may be resident.
// How many are is a number, looked at when a page is opened and when one is
// evicted.

// mutable is how many pages are updated in place. The caller holds mu.
func (l *Log) mutable() int64 {
	frames := l.frames.Load()
	return min(max(int64(float64(frames)*l.fraction), 1), frames-MinFrames+1)
}

// Resize changes the bytes of log that may be in memory, while sessions go on.
// Less memory has been given back when it returns: that takes until the pages
// have been written to all tiers, nobody is inside an epoch from before, and they
// are not on hold. A size that cannot be is an error and changes nothing; if the
// log fails meanwhile, the error says so.
func (l *Log) Resize(memory int64) error {
	frames := memory >> l.pageBits
	switch {
	case frames < MinFrames:
		return tooLittle(memory, l.pageSize)
	case frames<<l.pageBits > int64(len(l.ring)):
		return fmt.Errorf("hlog: memory of %v: the log was opened for at most %v", units.Size(memory), units.Size(len(l.ring)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.failure()
	if err == nil {
		l.frames.Store(frames)
		l.readOnly.raise((l.tailPage() - l.mutable()) << l.pageBits)
		l.progress.Broadcast() // there may be space now
		l.wake()
	}
	for err == nil && l.tailPage()-l.safeHead.load()>>l.pageBits >= l.frames.Load() {
		l.progress.Wait()
		err = l.failure()
	}
	if err != nil {
		return fmt.Errorf("hlog: resizing to %v: %w", units.Size(memory), err)
	}
	// Nobody opens a page meanwhile. Of the others the frames are free.
	l.discard(l.tailPage()+1, l.safeHead.load()>>l.pageBits+int64(len(l.ring))>>l.pageBits)
	return nil
}

func (l *Log) tailPage() int64 { return position(l.tail.Load()).page() }

// discard gives the memory of the frames of pages [from, to) back, which are
// free. Frames smaller than the system's pages stay.
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
