package redytier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redykv/redykv/device"
)

const (
	// journalMemory bounds the memory of a journal, which is at most an eighth of the cache.
	journalMemory = 32 << 20
	// journalPatience is how long a write to it may take: a commit waits for it, and can go to a disk.
	journalPatience = 250 * time.Millisecond
)

// journalSize is the number of bytes of a cache of a capacity that are for a journal.
func journalSize(capacity int64) int64 { return min(journalMemory, capacity/8) &^ 4095 }

// errJournal means that a journal's memory cannot be used now.
var errJournal = errors.New("redytier: the journal's memory is not there")

// Journal is the end of a cache's memory, outside the ring of the log: for the last commits of that
// log, which need no disk until then. It implements ssdtier.Journal. A cache that is taken up has
// the journal of before.
type Journal struct {
	cache *Cache
	kept  bool  // the cache may be taken up
	at    int64 // cache address of the first byte
	size  int64

	mu      sync.Mutex // guards the fields below
	session *Session   // nil before the first use
	closed  bool
	buf     []byte
	late    chan struct{} // closed when an operation that took too long has ended, which owns session and buf until then
	losses  uint64        // of the memory at Begin
}

// Journal returns the journal in the device's cache; nil without Config.Journal.
func (d *Device) Journal() *Journal { return d.journal }

func newJournal(cache *Cache, kept bool) *Journal {
	size := journalSize(cache.Capacity())
	return &Journal{cache: cache, kept: kept, at: cache.Capacity() - size, size: size}
}

// Name names the cache; "" if that ends with the process.
func (j *Journal) Name() string {
	if !j.kept {
		return ""
	}
	return "Redy cache " + j.cache.ID()
}

// Size is the number of bytes, at most 32 MiB.
func (j *Journal) Size() int64 { return j.size }

// Begin begins to note losses of the memory. It fails if a part of it is lost now, or if a write that
// failed may still arrive.
func (j *Journal) Begin() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	place := span{j.at, j.at + j.size}
	losses, err := j.cache.Losses(j.at, j.size)
	switch {
	case err != nil:
		return err
	case !j.inTime():
		return fmt.Errorf("%w: a write has not ended", errJournal)
	case j.cache.unavailable().overlap(place) || j.cache.arriving().overlap(place):
		return errJournal
	}
	j.losses = losses
	return nil
}

// WriteAt stores p. It fails if any of the memory has been lost since Begin, or after a quarter of a
// second: then the bytes may still be stored, and Begin fails until that has ended.
func (j *Journal) WriteAt(p []byte, off int64) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), journalPatience)
	defer cancel()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.do(ctx, len(p), off, true, func(buf []byte) { copy(buf, p) }); err != nil {
		return 0, err
	}
	losses, err := j.cache.Losses(j.at, j.size)
	if err == nil && losses != j.losses {
		err = fmt.Errorf("redytier: journal: memory was lost: %w", device.ErrNotHeld)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadAt reads what is there. It waits at most 10 s.
func (j *Journal) ReadAt(p []byte, off int64) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	j.mu.Lock()
	defer j.mu.Unlock()
	for n < len(p) && err == nil {
		part := p[n:min(len(p), n+1<<20)]
		if err = j.do(ctx, len(part), off+int64(n), false, nil); err == nil {
			n += copy(part, j.buf)
		}
	}
	return n, err
}

// inTime reports whether no operation is late. The caller holds mu.
func (j *Journal) inTime() bool {
	select {
	case <-j.late:
		j.late = nil
	default:
	}
	return j.late == nil
}

// do reads or writes n bytes, in buf, which fill fills. The caller holds mu.
func (j *Journal) do(ctx context.Context, n int, off int64, write bool, fill func(buf []byte)) (err error) {
	switch {
	case j.closed:
		return device.ErrClosed
	case !j.inTime():
		return fmt.Errorf("%w: an operation has not ended", errJournal)
	case off < 0 || off > j.size-int64(n):
		return fmt.Errorf("%w: %d bytes at %d of %d of the journal", ErrOutOfRange, n, off, j.size)
	}
	if j.session == nil {
		if j.session, err = j.cache.newSession(1, 0); err != nil {
			return err
		}
		j.session.waits.Store(false)
	}
	if cap(j.buf) < n {
		j.buf = make([]byte, n)
	}
	j.buf = j.buf[:n]
	if write {
		fill(j.buf)
	}
	if err := j.session.start(j.buf, j.at+off, write, 0); err != nil {
		return err
	}
	done, err := j.finish(ctx)
	if err == nil {
		return done.Err
	}
	late := make(chan struct{})
	j.late = late
	go func() { // the session has to be polled
		defer close(late)
		_, _ = j.finish(context.Background()) // its result is not wanted any more
	}()
	return fmt.Errorf("redytier: journal: %w", err)
}

// finish waits for the operation.
func (j *Journal) finish(ctx context.Context) (device.Completion, error) {
	var done [1]device.Completion
	for {
		if err := j.session.Wait(ctx); err != nil {
			return done[0], err
		}
		if j.session.Poll(done[:]) > 0 {
			return done[0], nil
		}
	}
}

// close ends the journal, before the cache ends.
func (j *Journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed = true; j.session == nil {
		return nil
	}
	if j.late != nil {
		<-j.late // operations end when their server is lost
	}
	return j.session.Close()
}
